// Validates a bundle by the library that operator-sdk calls. Prints every finding; the exit code is 1 if one is an error.
package main

import (
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
)

func main() {
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	objects := []any{bundle, bundle.CSV}
	for _, definition := range bundle.V1CRDs {
		objects = append(objects, definition)
	}
	failed := false
	for _, result := range validation.AllValidators.Validate(objects...) {
		for _, warning := range result.Warnings {
			fmt.Println("warning:", warning.Type, warning.Detail)
		}
		for _, failure := range result.Errors {
			fmt.Println("error:", failure.Type, failure.Detail)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}
