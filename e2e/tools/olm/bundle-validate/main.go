// Validates a bundle by the library that operator-sdk calls. Prints every finding; the exit code is 1 if one is an error.
//
// Two of its validators are left out: that of architectures pulls the image by a container engine, and that of removed
// APIs takes events of events.k8s.io for those of another group.
package main

import (
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	validator "github.com/operator-framework/api/pkg/validation/interfaces"
)

var validators = validator.Validators{
	validation.BundleValidator,
	validation.ClusterServiceVersionValidator,
	validation.CustomResourceDefinitionValidator,
	validation.GoodPracticesValidator,
	validation.ObjectValidator,
	validation.OperatorHubV2Validator,
	validation.StandardCapabilitiesValidator,
	validation.StandardCategoriesValidator,
}

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
	for _, object := range bundle.Objects {
		objects = append(objects, object)
	}
	failed := false
	for _, result := range validators.Validate(objects...) {
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
