package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// patience is the time that kube-scheduler allows a Pod on a node. Here it bounds the search for a Pod on
// all nodes that are tried.
const patience = 10 * time.Second

type options struct {
	tried int
	// Every Pod is removed before the next one comes.
	release bool
	// A slice is published anew before each Pod.
	change bool
}

type figures struct {
	NsPerPod int64  `json:"nsPerPod"`
	Solved   int    `json:"solved"`
	TimedOut int    `json:"timedOut"`
	Hash     string `json:"hash"`
}

// fill fills a cluster with claims, one Pod after the other, as kube-scheduler does: with a new allocator
// for each Pod, while the compiled expressions and the allocated state are kept.
func fill(from io.Reader, opts options) error {
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
	state, hash, said := s.allocated(), fnv.New64a(), figures{}
	note := func(text string) { hash.Write(append([]byte(text), 0)) }
	begun := time.Now()
	for pod, name := range s.Allocate {
		if opts.change {
			number := pod % len(s.ResourceSlices)
			s.ResourceSlices[number] = s.ResourceSlices[number].DeepCopy()
		}
		wanted := []*resourceapi.ResourceClaim{claims[name]}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		allocator, err := structured.NewAllocator(ctx, features, state, classes(s.DeviceClasses), s.ResourceSlices, cache)
		if err != nil {
			cancel()
			return err
		}
		var found []resourceapi.AllocationResult
		where := ""
		for i := range opts.tried {
			node := s.Nodes[(pod*opts.tried+i)%len(s.Nodes)]
			results, err := allocator.Allocate(ctx, node, wanted)
			if errors.Is(err, context.DeadlineExceeded) {
				said.TimedOut++
				break
			}
			if err != nil {
				cancel()
				return err
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
		said.Solved++
		note(where)
		for _, allocation := range found {
			for _, result := range allocation.Devices.Results {
				note(result.Device)
				hold(&state, result, features.ConsumableCapacity)
			}
		}
		for _, allocation := range found {
			for _, result := range allocation.Devices.Results {
				if opts.release {
					release(&state, result, features.ConsumableCapacity)
				}
			}
		}
	}
	said.NsPerPod = time.Since(begun).Nanoseconds() / int64(max(len(s.Allocate), 1))
	said.Hash = fmt.Sprintf("%016x", hash.Sum64())
	return json.NewEncoder(os.Stdout).Encode(said)
}

func filling(arguments []string) error {
	var opts options
	flags := flag.NewFlagSet("fill", flag.ExitOnError)
	flags.IntVar(&opts.tried, "tried", 100, "nodes to try for each Pod")
	flags.BoolVar(&opts.release, "release", false, "every Pod leaves before the next one comes")
	flags.BoolVar(&opts.change, "change", false, "a slice is published anew before each Pod")
	channel := flags.String("channel", "", "the allocator to use instead of the one that fits the gates")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *channel != "" {
		structured.EnableAllocators(*channel)
	}
	return fill(os.Stdin, opts)
}
