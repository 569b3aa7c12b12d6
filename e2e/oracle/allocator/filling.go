package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strconv"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Fills a cluster with claims, one Pod after the other, as kube-scheduler does: a new
// allocator for each Pod, the compiled expressions and the allocated state kept.
func fill(from io.Reader, tried int) error {
	var s scenario
	if err := json.NewDecoder(from).Decode(&s); err != nil {
		return err
	}
	features := s.features()
	cache := cel.NewCache(10, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity})
	claims := map[string]*resourceapi.ResourceClaim{}
	for _, claim := range s.ResourceClaims {
		claims[claim.Namespace+"/"+claim.Name] = claim
	}
	state, hash, solved := s.allocated(), fnv.New64a(), 0
	note := func(text string) { hash.Write(append([]byte(text), 0)) }
	begun := time.Now()
	for pod, name := range s.Allocate {
		wanted := []*resourceapi.ResourceClaim{claims[name]}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		allocator, err := structured.NewAllocator(ctx, features, state, classes(s.DeviceClasses), s.ResourceSlices, cache)
		if err != nil {
			cancel()
			return err
		}
		var found []resourceapi.AllocationResult
		where := ""
		for i := range tried {
			node := s.Nodes[(pod*tried+i)%len(s.Nodes)]
			results, err := allocator.Allocate(ctx, node, wanted)
			if err != nil {
				cancel()
				return fmt.Errorf("after %v: %w", time.Since(begun), err)
			}
			if len(results) > 0 && found == nil {
				found, where = results, node.Name
			}
		}
		cancel()
		note(name)
		if found == nil {
			continue
		}
		solved++
		note(where)
		for _, allocation := range found {
			for _, result := range allocation.Devices.Results {
				note(result.Device)
				hold(&state, result, features.ConsumableCapacity)
			}
		}
	}
	per := time.Since(begun).Nanoseconds() / int64(max(len(s.Allocate), 1))
	fmt.Printf("{\"nsPerPod\": %d, \"solved\": %d, \"hash\": \"%016x\"}\n", per, solved, hash.Sum64())
	return nil
}

func filling() error {
	tried, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	if len(os.Args) > 3 {
		structured.EnableAllocators(os.Args[3])
	}
	return fill(os.Stdin, tried)
}
