"""Allocators that break one rule of docs/protocol.md each: what `dragoman conformance` has to find."""
import sys

import example
from example import FINALIZER, Allocator


class Unprotected(Allocator):  # "simple": allocates without the finalizer.
    def protect(self, claim):
        return claim


class Timeless(Allocator):  # "simple": allocates without the time.
    def set_status(self, claim, allocation, consumers):
        allocation = allocation and {key: value for key, value in allocation.items() if key != "allocationTimestamp"}
        super().set_status(claim, allocation, consumers)


class Scattered(Allocator):  # "several": a node for each claim of a Pod.
    def choose(self, pod, claims, due):
        picked = []
        for number, claim in enumerate(due):
            nodes = self.nodes_for(pod, [claim])
            node = nodes[number % len(nodes)]
            free = [device for device in self.devices_on(node) if device not in self.taken_devices(claim)]
            picked.append((claim.uid, "device", free[0]))
        return None, picked

    def allocate(self, claim, pod, node, picked):
        node = next(device[1] for uid, _, device in picked if uid == claim.uid)
        super().allocate(claim, pod, node, picked)


class Selfish(Allocator):  # "shared": the second Pod takes the place of the first.
    def reserve(self, claim, pod):
        self.set_status(claim, claim.allocation, [pod.as_consumer])


class Greedy(Allocator):  # "foreign": allocates what is for others.
    def mine(self, claim):
        return True


class Hasty(Allocator):  # "ungated": serves Pods without the gate.
    def gated_pods(self):
        return [pod for pod in self.pods if not self.deleting(pod)]


class Pushy(Allocator):  # "gates": does not look at gates.
    def closed_gates(self, claim):
        return []


class Eager(Allocator):  # "behind": does not look at the other gates of a Pod.
    def gated_pods(self):
        gated = [pod for pod in self.pods if {"name": "dragoman.dev/claims"} in pod.spec.get("schedulingGates", [])]
        return [pod for pod in gated if not self.deleting(pod)]


class Stubborn(Allocator):  # "rejection": comes back to the node that was refused.
    def left_out_nodes(self, claims):
        return set()


class Generous(Allocator):  # "full": gives devices away again and again.
    def taken_devices(self, claim):
        return set()


class Silent(Allocator):  # "full": does not say why.
    def say(self, claim, why):
        pass


class Impatient(Allocator):  # "order": does not wait for the claims before its own.
    def due(self, pod, claims):
        return [claim for claim in claims if self.mine(claim) and pod.as_consumer not in claim.consumers]


class Careless(Allocator):  # "conflict": writes over the finalizers of others.
    def protect(self, claim):
        return self.add(claim, "/metadata/finalizers", [FINALIZER])


class Blind(Allocator):  # "deleted": allocates what is being deleted. The API server takes no reservation.
    def deleting(self, thing):
        return False

    def set_status(self, claim, allocation, consumers):
        super().set_status(claim, allocation, [] if claim.deleted else consumers)


class Unreserved(Allocator):  # "simple": allocates, and reserves nothing.
    def set_status(self, claim, allocation, consumers):
        super().set_status(claim, allocation, [])


class Partial(Allocator):  # "whole": keeps what it found for a part of the claims.
    def choose(self, pod, claims, due):
        return super().choose(pod, claims, [claim for claim in due if claim.spec["devices"]["requests"][0]
                                            ["exactly"].get("count", 1) < 3])

    def allocate(self, claim, pod, node, picked):
        if any(uid == claim.uid for uid, _, _ in picked):
            super().allocate(claim, pod, node, picked)

    def give_back(self, claim, pod):
        pass


class Usurper(Allocator):  # "owned": gives devices that belong to others.
    def foreign_drivers(self):
        return set()


class Announced:  # Says that its process has started.
    is_said = False

    def read(self):
        super().read()
        if not self.is_said:
            print("it reads the cluster", flush=True)
            self.is_said = True


if __name__ == "__main__":
    broken = globals()[sys.argv.pop(1)]
    example.main(type(broken.__name__, (Announced, broken), {}))
