// Command allocator answers scenarios with the structured allocator of k8s.io/dynamic-resource-allocation:
// one scenario a line, one answer a line, both JSON. With the argument "cel" each line is an expression
// with a device, and the answer is the value or the error of the expression in the CEL environment of that
// library. With "fill" the only scenario is a cluster to fill.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/dynamic-resource-allocation/structured"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "fill" {
		if err := filling(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	structured.EnableAllocators("experimental")
	answer := allocated
	if len(os.Args) > 1 && os.Args[1] == "cel" {
		answer = evaluated
	}
	if err := answerLines(os.Stdin, os.Stdout, answer); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answerLines(from io.Reader, to io.Writer, answer func([]byte) (any, error)) error {
	in := bufio.NewScanner(from)
	in.Buffer(nil, 1<<24)
	out := bufio.NewWriter(to)
	defer out.Flush()
	for in.Scan() {
		said, err := answer(in.Bytes())
		if err != nil {
			return err
		}
		text, err := json.Marshal(said)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, string(text))
	}
	return in.Err()
}
