// Command pods answers what Pods request, with the arithmetic of
// k8s.io/component-helpers/resource: one question a line, one answer a line, both JSON.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

type question struct {
	Pod                           v1.Pod
	UseStatusResources            bool
	PodLevelVerticalScaling       bool
	SkipPodLevelResources         bool
	ExcludeOverhead               bool
	NodeAllocatableResourceClaims bool
}

type answer struct {
	Requests   map[v1.ResourceName]string            `json:"requests"`
	Limits     map[v1.ResourceName]string            `json:"limits"`
	Containers map[string]map[v1.ResourceName]string `json:"containers"`
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			fail(err)
		}
		text, err := json.Marshal(answered(&q))
		if err != nil {
			fail(err)
		}
		fmt.Fprintln(out, string(text))
	}
	if err := in.Err(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func answered(q *question) answer {
	options := resource.PodResourcesOptions{
		UseStatusResources: q.UseStatusResources,
		InPlacePodLevelResourcesVerticalScalingEnabled: q.PodLevelVerticalScaling,
		SkipPodLevelResources:                          q.SkipPodLevelResources,
		ExcludeOverhead:                                q.ExcludeOverhead,
		UseDRANodeAllocatableResourceClaimStatus:       q.NodeAllocatableResourceClaims,
	}
	// Copies: the library may change lists that it was given.
	a := answer{
		Requests:   plain(resource.PodRequests(q.Pod.DeepCopy(), options)),
		Limits:     plain(resource.PodLimits(q.Pod.DeepCopy(), options)),
		Containers: map[string]map[v1.ResourceName]string{},
	}
	for _, list := range [][]v1.Container{q.Pod.Spec.Containers, q.Pod.Spec.InitContainers} {
		for _, c := range list {
			a.Containers[c.Name] = plain(resource.GetContainerDRAAllocations(q.Pod.DeepCopy(), c.Name))
		}
	}
	return a
}

// plain leaves out what is zero: whether a zero is listed decides nothing.
func plain(list v1.ResourceList) map[v1.ResourceName]string {
	out := map[v1.ResourceName]string{}
	for name, amount := range list {
		if !amount.IsZero() {
			out[name] = amount.String()
		}
	}
	return out
}
