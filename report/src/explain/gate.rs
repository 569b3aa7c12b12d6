//! Advice about Pods behind their gate, by the reason that the operator gives (docs/protocol.md 6).

/// The way to open a gate that is closed for this reason.
pub(super) fn opens(reason: &str) -> &'static str {
    match reason {
        "" => "run Dragoman with `--controllers=*,gates`, or remove the gate from the template of the Pod",
        "ClaimMissing" | "ClaimDeleted" | "ClaimUnreadable" => "create the claim, or delete the Pod",
        "AllocationGateClosed" | "ReleaseGateClosed" => {
            "the controller that closed the gate of the claim opens it: the claim names it in its annotations"
        }
        "NotAllocated" => {
            "the Events of the Pod say what the allocator lacks; without any, look whether the allocator of that name runs"
        }
        "NotReserved" | "PromisedTwice" | "NoCommonNode" | "WrongDevices" => {
            "the allocator has to correct its allocation: `dragoman conformance` finds its fault"
        }
        "DoesNotFit" | "Unaccounted" | "NodeUnsuitable" | "NotPublished" => {
            "`kubectl dra ledger` shows what is taken from the node; free the room there, or correct what it cannot count"
        }
        "OverBudget" => {
            "raise `spec.resources` in the template of the Pod, or ask for devices that take less"
        }
        "AttributeMissing" => {
            "ask for another attribute in `dragoman.dev/attributes`, or let the driver publish this one"
        }
        _ => "the gate opens once the message is no longer true",
    }
}
