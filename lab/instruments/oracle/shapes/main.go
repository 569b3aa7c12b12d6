// Command shapes decodes Dragoman's output strictly into the published types of Kubernetes and encodes it
// again: one question a line, one answer a line, both JSON.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
)

type question struct {
	Kind   string
	Object json.RawMessage
}

type answer struct {
	Refused string `json:"refused,omitempty"`
	Object  any    `json:"object,omitempty"`
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
	var object any
	switch q.Kind {
	case "PodStatus":
		object = &v1.PodStatus{}
	case "Device":
		object = &resource.Device{}
	default:
		fail(fmt.Errorf("unknown kind %q", q.Kind))
	}
	decoder := json.NewDecoder(bytes.NewReader(q.Object))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(object); err != nil {
		return answer{Refused: err.Error()}
	}
	return answer{Object: object}
}
