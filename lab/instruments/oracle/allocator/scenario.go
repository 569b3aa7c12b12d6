package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// deadline bounds the search for a scenario. A longer search is a timeout.
const deadline = time.Second

type scenario struct {
	Nodes            []*corev1.Node                `json:"nodes"`
	ResourceSlices   []*resourceapi.ResourceSlice  `json:"resourceSlices"`
	DeviceClasses    []*resourceapi.DeviceClass    `json:"deviceClasses"`
	ResourceClaims   []*resourceapi.ResourceClaim  `json:"resourceClaims"`
	DeviceTaintRules []resourceapi.DeviceTaintRule `json:"deviceTaintRules"`
	Allocate         []string                      `json:"allocate"`
	Candidates       []string                      `json:"candidates"`
	FeatureGates     map[string]bool               `json:"featureGates"`
}

type answer struct {
	Allocator   string                                  `json:"allocator"`
	Outcome     string                                  `json:"outcome"`
	Node        string                                  `json:"node,omitempty"`
	Allocations map[string]resourceapi.AllocationResult `json:"allocations,omitempty"`
	Explanation string                                  `json:"explanation,omitempty"`
	// The errors of candidates that were skipped because of them.
	NodeErrors map[string]string `json:"nodeErrors,omitempty"`
}

func allocated(line []byte) (any, error) {
	var s scenario
	if err := json.Unmarshal(line, &s); err != nil {
		return nil, err
	}
	return s.allocate()
}

func (s *scenario) allocate() (*answer, error) {
	features := s.features()
	cache := compiled(cel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity,
		EnableListTypeAttributes: features.ListTypeAttributes,
	})
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, features, s.allocated(), classes(s.DeviceClasses), s.tainted(), cache)
	if err != nil {
		return nil, err
	}
	said := &answer{Allocator: fmt.Sprintf("%T", allocator), NodeErrors: map[string]string{}}
	wanted, fixed, err := s.wanted()
	if err != nil {
		return nil, err
	}
	for _, name := range s.Candidates {
		node, err := s.node(name)
		if err != nil {
			return nil, err
		}
		if usable, err := usableOn(fixed, node); err != nil || !usable {
			if err != nil {
				return nil, err
			}
			continue
		}
		results, err := allocator.Allocate(ctx, node, wanted)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			said.Outcome = "timeout"
			return said, nil
		case errors.Is(err, structured.ErrFailedAllocationOnNode):
			said.NodeErrors[name] = err.Error()
			continue
		case err != nil:
			said.Outcome, said.Node, said.Explanation = "error", name, err.Error()
			return said, nil
		case len(results) == len(wanted):
			said.Outcome, said.Node = "solution", name
			said.Allocations = map[string]resourceapi.AllocationResult{}
			for i, claim := range wanted {
				said.Allocations[claim.Namespace+"/"+claim.Name] = results[i]
			}
			return said, nil
		}
	}
	said.Outcome = "none"
	return said, nil
}

var caches = map[cel.Features]*cel.Cache{}

// compiled returns the cache of expressions for these features, which all scenarios share.
func compiled(features cel.Features) *cel.Cache {
	if caches[features] == nil {
		caches[features] = cel.NewCache(100, features)
	}
	return caches[features]
}

func (s *scenario) features() structured.Features {
	on := func(gate string) bool { return s.FeatureGates[gate] }
	return structured.Features{
		AdminAccess:             on("DRAAdminAccess"),
		CompatibilityGroups:     on("DRADeviceCompatibilityGroups"),
		ConsumableCapacity:      on("DRAConsumableCapacity"),
		DerivedAttributes:       on("DRADerivedAttributes"),
		DeviceBindingAndStatus:  on("DRADeviceBindingConditions"),
		DeviceTaints:            on("DRADeviceTaints"),
		FractionalCapacityRange: on("DRAFractionalCapacityRange"),
		ListTypeAttributes:      on("DRAListTypeAttributes"),
		OptionalNodeOperations:  on("DRAOptionalNodeOperations"),
		PartitionableDevices:    on("DRAPartitionableDevices"),
		PrioritizedList:         on("DRAPrioritizedList"),
	}
}

// allocated gathers the devices that claims hold, as kube-scheduler does.
func (s *scenario) allocated() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	sharing := s.FeatureGates["DRAConsumableCapacity"]
	for _, claim := range s.ResourceClaims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			hold(&state, result, sharing)
		}
	}
	return state
}

func hold(state *structured.AllocatedState, result resourceapi.DeviceRequestAllocationResult, sharing bool) {
	if ptr.Deref(result.AdminAccess, false) {
		return
	}
	id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
	if result.ShareID == nil || !sharing {
		state.AllocatedDevices.Insert(id)
		return
	}
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
	if result.ConsumedCapacity != nil {
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
	}
}

func release(state *structured.AllocatedState, result resourceapi.DeviceRequestAllocationResult, sharing bool) {
	if ptr.Deref(result.AdminAccess, false) {
		return
	}
	id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
	if result.ShareID == nil || !sharing {
		state.AllocatedDevices.Delete(id)
		return
	}
	state.AllocatedSharedDeviceIDs.Delete(structured.MakeSharedDeviceID(id, result.ShareID))
	if result.ConsumedCapacity != nil {
		state.AggregatedCapacity.Remove(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
	}
}

func (s *scenario) tainted() []*resourceapi.ResourceSlice {
	if !s.FeatureGates["DRADeviceTaintRules"] {
		return s.ResourceSlices
	}
	slices := make([]*resourceapi.ResourceSlice, 0, len(s.ResourceSlices))
	for _, slice := range s.ResourceSlices {
		slice = slice.DeepCopy()
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			for _, rule := range s.DeviceTaintRules {
				if selects(rule.Spec.DeviceSelector, slice, device) {
					device.Taints = append(device.Taints, rule.Spec.Taint)
				}
			}
		}
		slices = append(slices, slice)
	}
	return slices
}

func selects(selector *resourceapi.DeviceTaintSelector, slice *resourceapi.ResourceSlice, device *resourceapi.Device) bool {
	if selector == nil {
		return false
	}
	same := func(wanted *string, value string) bool { return wanted == nil || *wanted == value }
	return same(selector.Driver, slice.Spec.Driver) && same(selector.Pool, slice.Spec.Pool.Name) && same(selector.Device, device.Name)
}

// wanted returns the claims to allocate, and separately those that are allocated already.
func (s *scenario) wanted() (unallocated, fixed []*resourceapi.ResourceClaim, err error) {
	for _, name := range s.Allocate {
		var found *resourceapi.ResourceClaim
		for _, claim := range s.ResourceClaims {
			if claim.Namespace+"/"+claim.Name == name {
				found = claim
			}
		}
		switch {
		case found == nil:
			return nil, nil, fmt.Errorf("no claim %s", name)
		case found.Status.Allocation != nil:
			fixed = append(fixed, found)
		default:
			unallocated = append(unallocated, found)
		}
	}
	return unallocated, fixed, nil
}

func usableOn(fixed []*resourceapi.ResourceClaim, node *corev1.Node) (bool, error) {
	for _, claim := range fixed {
		if claim.Status.Allocation.NodeSelector == nil {
			continue
		}
		selector, err := nodeaffinity.NewNodeSelector(claim.Status.Allocation.NodeSelector)
		if err != nil {
			return false, err
		}
		if !selector.Match(node) {
			return false, nil
		}
	}
	return true, nil
}

func (s *scenario) node(name string) (*corev1.Node, error) {
	for _, node := range s.Nodes {
		if node.Name == name {
			return node, nil
		}
	}
	return nil, fmt.Errorf("no node %s", name)
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("deviceclass %q not found", name)
}
