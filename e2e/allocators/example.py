"""An allocator for Dragoman's claim gates, version 4. docs/protocol.md explains P1 to P8. Copy it as a start.

It lists everything twice a second, because that is short; a large cluster needs watches. Run one process: two
would promise the same devices. What it cannot read it refuses with a verdict.
"""
import argparse, json, re, ssl, time, urllib.error, urllib.request
from datetime import datetime, timedelta, timezone
from http.client import HTTPException
from itertools import takewhile

OURS, FINALIZER = "dragoman.dev/", "resource.kubernetes.io/delete-protection"
DRA, DRIVER = "/apis/resource.k8s.io/v1/", re.compile(r'\s*device\.driver\s*==\s*"([^"\\]+)"\s*')
# Other fields of devices and requests (taints, counters, shares) are rules unknown here.
DEVICE = {"name", "attributes", "capacity", "nodeAllocatableResourceMappings"}
REQUEST = {"deviceClassName", "count", "allocationMode", "selectors"}


def now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class NoNode(Exception):
    """Why a Pod gets no node in this round: reason, message, nodes that were looked at."""


class Thing:
    def __init__(self, item):
        meta, self.spec, self.status = item["metadata"], item.get("spec", {}), item.get("status", {})
        self.namespace, self.name, self.uid = meta.get("namespace"), meta["name"], meta["uid"]
        self.labels, self.annotations = meta.get("labels", {}), meta.get("annotations", {})
        self.finalizers, self.version = meta.get("finalizers", []), meta["resourceVersion"]
        self.created, self.deleted = meta["creationTimestamp"], meta.get("deletionTimestamp")
        self.allocation, self.consumers = self.status.get("allocation"), self.status.get("reservedFor", [])
        self.as_consumer = {"resource": "pods", "name": self.name, "uid": self.uid}


class Allocator:
    def __init__(self, opener, server, name):
        self.opener, self.server, self.name = opener, server, name
        self.held = {}  # (claim, version that guards its write): devices, until a list shows the outcome
        self.waits = {}  # Pod: (since when it finds no node, or until when it rests; length of the next rest)
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = self.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        self.user = answer["status"]["userInfo"]["username"]

    # What the API says. A list without resourceVersion is not older than the last answered write.
    def call(self, method, path, body=None, kind="json"):
        data, headers = body and json.dumps(body).encode(), {"Content-Type": f"application/{kind}"}
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        with self.opener.open(request, timeout=5) as answer:
            return json.load(answer)

    def items(self, path):
        return [Thing(item) for item in self.call("GET", path)["items"]]

    def read(self):
        self.nodes = self.items("/api/v1/nodes")
        self.slices = [part.spec for part in self.items(DRA + "resourceslices")]
        self.classes = {kind.name: kind.spec for kind in self.items(DRA + "deviceclasses")}
        self.foreign = self.foreign_drivers()
        self.claims = {(claim.namespace, claim.name): claim for claim in self.items(DRA + "resourceclaims")}
        # P5: a write whose answer was lost can still arrive while the claim has the version that guards it.
        guards = {(claim.uid, claim.version) for claim in self.claims.values()}
        self.held = {guard: devices for guard, devices in self.held.items() if guard in guards}
        # Last: a Pod that has ended since does not get the devices that its claim has just given back.
        self.pods = self.items("/api/v1/pods")

    def foreign_drivers(self):  # Those that a DriverOwner gives to others.
        try:
            owned = self.items("/apis/" + OURS + "v1alpha1/driverowners")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            owned = []  # The cluster does not know the kind.
        users = {kind.name: {"system:serviceaccount:{namespace}:{name}".format(**owner) for owner in kind.spec["owners"]}
                 for kind in owned}
        return {driver for driver, owners in users.items() if self.user not in owners}

    def gated_pods(self):  # The oldest first, because the operator lets the oldest keep a device. Other gates come before ours.
        gated = [p for p in self.pods if p.spec.get("schedulingGates") == [{"name": OURS + "claims"}]]
        return sorted((pod for pod in gated if not self.deleting(pod)), key=lambda pod: pod.created)

    def claims_of(self, pod):  # In the order of its spec. None if one does not exist yet.
        made = {s["name"]: s.get("resourceClaimName") for s in pod.status.get("resourceClaimStatuses", [])}
        claims = {}
        for entry in pod.spec.get("resourceClaims", []):
            name = entry.get("resourceClaimName") or made.get(entry["name"], "not made yet")
            if name is not None:  # Otherwise the status says that no claim is needed.
                claims[name] = self.claims.get((pod.namespace, name))
        return None if None in claims.values() else list(claims.values())

    def mine(self, claim):
        return claim.labels.get(OURS + "allocator") == self.name

    def deleting(self, thing):
        return thing.deleted is not None

    def closed_gates(self, claim):
        return [key for key in claim.annotations if key.startswith("allocation-gates." + OURS)]

    def taken_devices(self, claim):  # By other claims: in the API, or decided and not seen there yet.
        others = [c.allocation for c in self.claims.values() if c.uid != claim.uid and c.allocation]
        results = [result for other in others for result in other.get("devices", {}).get("results", [])]
        held = [devices for (uid, _), devices in self.held.items() if uid != claim.uid]
        return {(r["driver"], r["pool"], r["device"]) for r in results}.union(*held)

    def devices_on(self, node):  # Of the newest generation of each pool, once all its slices are there.
        pools = {}
        for part in self.slices:
            key = part["driver"], part["pool"]["name"], part["pool"]["generation"]
            pools.setdefault(key, []).append(part)
        newest = {key[:2]: pools[key] for key in sorted(pools) if key[0] not in self.foreign}
        return [(*pool, device["name"]) for pool, parts in newest.items() for part in parts
                if len(parts) == part["pool"]["resourceSliceCount"] and part.get("nodeName") == node
                for device in part.get("devices", []) if device.keys() <= DEVICE]

    # What to do.
    def due(self, pod, claims):  # What comes after a claim of another party waits until that is allocated.
        ready = takewhile(lambda claim: self.mine(claim) or claim.allocation is not None, claims)
        return [claim for claim in ready if self.mine(claim) and pod.as_consumer not in claim.consumers]

    def left_out_nodes(self, claims):
        nodes, horizon = set(), datetime.now(timezone.utc) - timedelta(seconds=10)
        for text in (claim.annotations.get(OURS + "rejections", "[]") for claim in claims):
            try:
                refused = json.loads(text) if len(text.encode()) <= 8192 else []
                nodes |= {r["node"] for r in refused if datetime.fromisoformat(r["time"]) > horizon}
            except (KeyError, TypeError, ValueError, RecursionError):
                pass  # A tenant may have written it. What does not parse says nothing.
        return nodes

    def node_takes(self, pod, node):  # A real allocator also reads taints and affinity.
        wanted = pod.spec.get("nodeSelector", {})
        return not node.spec.get("unschedulable") and wanted.items() <= node.labels.items()

    def only(self, node):
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {"nodeSelectorTerms": [{"matchFields": [field]}]}

    def nodes_for(self, pod, claims):  # What is allocated already confines the rest.
        selectors = [claim.allocation.get("nodeSelector") for claim in claims if claim.allocation is not None]
        names = {node.name for node in self.nodes if self.node_takes(pod, node)} - self.left_out_nodes(claims)
        return [name for name in sorted(names) if all(s in (None, self.only(name)) for s in selectors)]

    def wanted(self, claim):  # For every device: the claim, its request, and the drivers that selectors name.
        spec = claim.spec.get("devices", {})
        for request in spec.get("requests", []):
            asked = request.get("exactly", {"firstAvailable": "is not read"})
            kind = self.classes.get(asked.get("deviceClassName"), {"config": "of an unknown class"})
            if (spec.keys() != {"requests"} or asked.keys() - REQUEST or "config" in kind
                    or asked.get("allocationMode", "ExactCount") != "ExactCount"):
                raise NoNode("Unreadable", "a request has a field that is not read here, or no class", [])
            selectors = [s.get("cel", {}) for s in kind.get("selectors", []) + asked.get("selectors", [])]
            found = [DRIVER.fullmatch(cel.get("expression", "")) for cel in selectors]
            if not all(found):
                raise NoNode("Unreadable", 'a selector has not the form device.driver == "NAME"', [])
            yield from [(claim, request["name"], {match[1] for match in found})] * asked.get("count", 1)

    def choose(self, pod, claims, due):
        """The first node by name with devices for all that is due, and (claim, request, device) of each."""
        wanted = [one for claim in due if claim.allocation is None for one in self.wanted(claim)]
        wanted.sort(key=lambda one: not one[2])  # A request for any driver takes what the others leave.
        taken, nodes = {claim: self.taken_devices(claim) for claim in due}, self.nodes_for(pod, claims)
        for node in nodes:
            free, picked = self.devices_on(node), []
            for claim, request, drivers in wanted:
                fits = [device for device in free if drivers <= {device[0]} and device not in taken[claim]]
                if fits:
                    free.remove(fits[0])
                    picked.append((claim.uid, request, fits[0]))
            if len(picked) == len(wanted):
                return node, picked
        foreign = f"; others own the devices of {', '.join(sorted(self.foreign))}" if self.foreign else ""
        raise NoNode("NoDevices", "no node that the Pod may use has the devices free" + foreign, nodes)

    # The writes, each guarded by uid and resourceVersion.
    def write(self, claim, body, kind, subresource=""):
        path = f"{DRA}namespaces/{claim.namespace}/resourceclaims/{claim.name}{subresource}"
        answer = Thing(self.call("PATCH", path, body, kind))
        self.claims[claim.namespace, claim.name] = answer  # The next Pod of the round may share the claim.
        return answer

    def add(self, claim, path, value, subresource=""):  # It replaces what is there.
        guards = {"/metadata/uid": claim.uid, "/metadata/resourceVersion": claim.version}
        tests = [{"op": "test", "path": field, "value": expected} for field, expected in guards.items()]
        body = [*tests, {"op": "add", "path": path, "value": value}]
        return self.write(claim, body, "json-patch+json", subresource)

    def protect(self, claim):
        if FINALIZER in claim.finalizers:
            return claim
        return self.add(claim, "/metadata/finalizers", [*claim.finalizers, FINALIZER])

    def set_status(self, claim, allocation, consumers):
        status = {**claim.status, "allocation": allocation, "reservedFor": consumers}
        return self.add(claim, "/status", status, "/status")

    def allocate(self, claim, pod, node, picked):
        results = [{"request": request, "driver": device[0], "pool": device[1], "device": device[2]}
                   for uid, request, device in picked if uid == claim.uid]
        # Without the time kube-scheduler (from 1.36 on) can add no other Pod to the claim.
        allocation = {"devices": {"results": results}, "nodeSelector": self.only(node), "allocationTimestamp": now()}
        self.set_status(claim, allocation, [pod.as_consumer])

    def reserve(self, claim, pod):
        self.set_status(claim, claim.allocation, [*claim.consumers, pod.as_consumer])

    def give_back(self, claim, pod):
        if self.mine(claim) and claim.consumers == [pod.as_consumer]:  # It is held for this Pod alone.
            self.set_status(claim, None, [])

    def say(self, claim, why):
        reason, message, nodes = why.args
        if json.dumps(message) not in claim.annotations.get(OURS + "verdict", ""):  # It is news.
            text = json.dumps({"reason": reason, "message": message, "nodes": nodes[:16], "time": now()})
            guards = {"uid": claim.uid, "resourceVersion": claim.version}
            body = {"metadata": {**guards, "annotations": {OURS + "verdict": text}}}
            self.write(claim, body, "merge-patch+json")

    # A Pod, a round, the loop.
    def resting(self, pod):
        return time.monotonic() < self.waits.get(pod.uid, (0, 0))[0]

    def wait(self, pod, claims, due, why):
        since, rest = self.waits.setdefault(pod.uid, (time.monotonic(), 1))
        if time.monotonic() - since >= 2:  # P7
            for claim in claims:
                self.give_back(claim, pod)
            self.waits[pod.uid] = time.monotonic() + rest, min(60, 2 * rest)
        for claim in due:
            if claim.allocation is None:
                self.say(claim, why)

    def serve(self, pod):
        claims = self.claims_of(pod)
        if claims is None or any(map(self.deleting, claims)) or self.resting(pod):
            return
        due = self.due(pod, claims)
        if not due or any(self.closed_gates(claim) for claim in due if claim.allocation is None):
            return
        try:
            node, picked = self.choose(pod, claims, due)
        except NoNode as why:
            return self.wait(pod, claims, due, why)
        self.waits.pop(pod.uid, None)
        due = [self.protect(claim) for claim in due]
        for claim in due:  # All is held before the first write of it. An answer may be lost.
            mine = {device for uid, _, device in picked if uid == claim.uid}
            self.held.setdefault((claim.uid, claim.version), set()).update(mine)
        for claim in due:
            if claim.allocation is None:
                self.allocate(claim, pod, node, picked)
            else:
                self.reserve(claim, pod)

    def run_once(self):
        self.read()
        for pod in self.gated_pods():
            try:
                self.serve(pod)
            except urllib.error.HTTPError as error:  # A conflict (409, 422): the next round reads again.
                print(pod.namespace, pod.name, error, error.read(300), flush=True)


def main(kind=Allocator):
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("server", "ca", "name", "cert", "key", "token"):
        parser.add_argument("--" + option, required=option in ("server", "ca", "name"))
    options = parser.parse_args()
    tls = ssl.create_default_context(cafile=options.ca)
    if options.cert:
        tls.load_cert_chain(options.cert, options.key)
    no_proxy, https = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    opener = urllib.request.build_opener(no_proxy, https)
    opener.addheaders = [("Authorization", f"Bearer {options.token}")] if options.token else []
    allocator = kind(opener, options.server.rstrip("/"), options.name)
    while True:
        try:
            allocator.run_once()
        except (OSError, HTTPException, ValueError) as error:  # No answer. The next list shows what was done.
            print(error, flush=True)
        time.sleep(0.5)


if __name__ == "__main__":
    main()
