// Command quantity answers questions about quantities with the arithmetic of
// k8s.io/apimachinery: one question a line, fields separated by tabs, one answer a line.
//
//	parse Q   → ok, canonical form, Value, MilliValue | the error
//	add A B   → canonical form of A + B
//	sub A B   → canonical form of A - B
//	cmp A B   → -1, 0, 1
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		fmt.Fprintln(out, answer(strings.Split(in.Text(), "\t")))
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answer(question []string) string {
	if question[0] == "parse" {
		q, err := resource.ParseQuantity(question[1])
		if err != nil {
			return "error\t" + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		return fmt.Sprintf("ok\t%s\t%d\t%d", canonical(q), q.Value(), q.MilliValue())
	}
	a, b := resource.MustParse(question[1]), resource.MustParse(question[2])
	switch question[0] {
	case "add":
		a.Add(b)
		return canonical(a)
	case "sub":
		a.Sub(b)
		return canonical(a)
	case "cmp":
		return fmt.Sprint(a.Cmp(b))
	}
	return "unknown question " + question[0]
}

// canonical returns the form that the API stores; String may return the text that was parsed. It works on
// a copy, because CanonicalizeBytes may change the number behind a large quantity.
func canonical(q resource.Quantity) string {
	copied := q.DeepCopy()
	number, suffix := copied.CanonicalizeBytes(nil)
	return string(number) + string(suffix)
}
