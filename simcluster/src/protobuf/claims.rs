//! The field numbers of claims, from the struct tags of `k8s.io/api/resource/v1`.

use super::messages::Form::{Bool, Inline, Int, Many, Map, Message as Of, Quantity, Raw, Text, Time};
use super::messages::{METADATA, Message, TEXTS, f};

pub(super) static CLAIM: Message = Message(&[METADATA, f(2, "spec", Of(&SPEC)), f(3, "status", Of(&STATUS))]);
static SPEC: Message = Message(&[f(1, "devices", Of(&DEVICES))]);
static DEVICES: Message = Message(&[
    f(1, "requests", Many(&Of(&REQUEST))),
    f(2, "constraints", Many(&Of(&CONSTRAINT))),
    f(3, "config", Many(&Of(&CLAIM_CONFIGURATION))),
]);
static REQUEST: Message = Message(&[
    f(1, "name", Text),
    f(2, "exactly", Of(&EXACTLY)),
    f(3, "firstAvailable", Many(&Of(&SUBREQUEST))),
]);
static EXACTLY: Message = Message(&[
    f(1, "deviceClassName", Text),
    f(2, "selectors", Many(&Of(&SELECTOR))),
    f(3, "allocationMode", Text),
    f(4, "count", Int),
    f(5, "adminAccess", Bool),
    f(6, "tolerations", Many(&Of(&TOLERATION))),
    f(7, "capacity", Of(&CAPACITY)),
    f(8, "derivedAttributes", Many(&Of(&DERIVED))),
]);
static SUBREQUEST: Message = Message(&[
    f(1, "name", Text),
    f(2, "deviceClassName", Text),
    f(3, "selectors", Many(&Of(&SELECTOR))),
    f(4, "allocationMode", Text),
    f(5, "count", Int),
    f(6, "tolerations", Many(&Of(&TOLERATION))),
    f(7, "capacity", Of(&CAPACITY)),
    f(8, "derivedAttributes", Many(&Of(&DERIVED))),
]);
static SELECTOR: Message = Message(&[f(1, "cel", Of(&CEL))]);
static CEL: Message = Message(&[f(1, "expression", Text)]);
static DERIVED: Message = Message(&[f(1, "name", Text), f(2, "expression", Text)]);
static CAPACITY: Message = Message(&[f(1, "requests", Map(&Quantity))]);
static TOLERATION: Message = Message(&[
    f(1, "key", Text),
    f(2, "operator", Text),
    f(3, "value", Text),
    f(4, "effect", Text),
    f(5, "tolerationSeconds", Int),
]);
static CONSTRAINT: Message =
    Message(&[f(1, "requests", TEXTS), f(2, "matchAttribute", Text), f(3, "distinctAttribute", Text)]);
static CLAIM_CONFIGURATION: Message = Message(&[f(1, "requests", TEXTS), f(2, "", Inline(&CONFIGURATION))]);
static CONFIGURATION: Message = Message(&[f(1, "opaque", Of(&OPAQUE))]);
static OPAQUE: Message = Message(&[f(1, "driver", Text), f(2, "parameters", Raw)]);

static STATUS: Message = Message(&[
    f(1, "allocation", Of(&ALLOCATION)),
    f(2, "reservedFor", Many(&Of(&CONSUMER))),
    f(4, "devices", Many(&Of(&DEVICE_STATUS))),
]);
static ALLOCATION: Message = Message(&[
    f(1, "devices", Of(&DEVICE_ALLOCATION)),
    f(3, "nodeSelector", Of(&NODE_SELECTOR)),
    f(5, "allocationTimestamp", Time),
]);
static DEVICE_ALLOCATION: Message =
    Message(&[f(1, "results", Many(&Of(&RESULT))), f(2, "config", Many(&Of(&ALLOCATION_CONFIGURATION)))]);
static ALLOCATION_CONFIGURATION: Message =
    Message(&[f(1, "source", Text), f(2, "requests", TEXTS), f(3, "", Inline(&CONFIGURATION))]);
static RESULT: Message = Message(&[
    f(1, "request", Text),
    f(2, "driver", Text),
    f(3, "pool", Text),
    f(4, "device", Text),
    f(5, "adminAccess", Bool),
    f(6, "tolerations", Many(&Of(&TOLERATION))),
    f(7, "bindingConditions", TEXTS),
    f(8, "bindingFailureConditions", TEXTS),
    f(9, "shareID", Text),
    f(10, "consumedCapacity", Map(&Quantity)),
    f(11, "skipNodeOperations", TEXTS),
]);
static NODE_SELECTOR: Message = Message(&[f(1, "nodeSelectorTerms", Many(&Of(&TERM)))]);
static TERM: Message = Message(&[
    f(1, "matchExpressions", Many(&Of(&REQUIREMENT))),
    f(2, "matchFields", Many(&Of(&REQUIREMENT))),
]);
static REQUIREMENT: Message = Message(&[f(1, "key", Text), f(2, "operator", Text), f(3, "values", TEXTS)]);
static CONSUMER: Message =
    Message(&[f(1, "apiGroup", Text), f(3, "resource", Text), f(4, "name", Text), f(5, "uid", Text)]);
static DEVICE_STATUS: Message = Message(&[
    f(1, "driver", Text),
    f(2, "pool", Text),
    f(3, "device", Text),
    f(4, "conditions", Many(&Of(&CONDITION))),
    f(5, "data", Raw),
    f(6, "networkData", Of(&NETWORK)),
    f(7, "shareID", Text),
]);
static CONDITION: Message = Message(&[
    f(1, "type", Text),
    f(2, "status", Text),
    f(3, "observedGeneration", Int),
    f(4, "lastTransitionTime", Time),
    f(5, "reason", Text),
    f(6, "message", Text),
]);
static NETWORK: Message =
    Message(&[f(1, "interfaceName", Text), f(2, "ips", TEXTS), f(3, "hardwareAddress", Text)]);
