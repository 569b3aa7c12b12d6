// Command pods answers questions about requests and limits of Pods with the arithmetic of
// k8s.io/component-helpers/resource: one question a line, one answer a line, both JSON. With the argument
// "time" the lines are Pods, and the only answer is how many nanoseconds PodRequests takes for one of them,
// as the median of five runs.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

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
	if len(os.Args) > 1 && os.Args[1] == "time" {
		fmt.Fprintln(out, timed(in))
		return
	}
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

// timed measures PodRequests with the options of kube-scheduler.
func timed(in *bufio.Scanner) float64 {
	const runs, rounds = 5, 20
	var pods []*v1.Pod
	for in.Scan() {
		pod := &v1.Pod{}
		if err := json.Unmarshal(in.Bytes(), pod); err != nil {
			fail(err)
		}
		pods = append(pods, pod)
	}
	if err := in.Err(); err != nil {
		fail(err)
	}
	options := resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
		UseDRANodeAllocatableResourceClaimStatus:       true,
	}
	var times []float64
	for range runs {
		begun := time.Now()
		for range rounds {
			for _, pod := range pods {
				if len(resource.PodRequests(pod, options)) == 0 {
					fail(fmt.Errorf("%s requests nothing", pod.Name))
				}
			}
		}
		times = append(times, float64(time.Since(begun).Nanoseconds())/float64(rounds*len(pods)))
	}
	sort.Float64s(times)
	return times[runs/2]
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
	// The library gets copies, because it may change its arguments.
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

// plain leaves out amounts of zero, which mean the same as missing ones.
func plain(list v1.ResourceList) map[v1.ResourceName]string {
	out := map[v1.ResourceName]string{}
	for name, amount := range list {
		if !amount.IsZero() {
			out[name] = amount.String()
		}
	}
	return out
}
