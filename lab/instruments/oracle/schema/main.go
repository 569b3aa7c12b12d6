// Command schema prints what a version of k8s.io/api documents about claims and devices: every field of resource.k8s.io, and those of Pods
// that are about claims, with type and comment. Its argument is the archive of the module, as the go command has downloaded it; each line is
// JSON. It reads the declarations and compiles nothing, so that a version for a newer Go can be read.
package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path"
	"reflect"
	"strings"
)

// field of a type, as the API documents it.
type field struct {
	Field   string `json:"field"`
	Type    string `json:"type"`
	Comment string `json:"comment"`
}

// The fields of Pods that are about claims. One that a version does not have is left out.
var ofPods = map[string]bool{
	"resourceClaims": true, "resourceClaimStatuses": true, "extendedResourceClaimStatus": true,
	"nodeAllocatableResourceClaimStatuses": true, "additionalNodeAllocatableResources": true,
}

type schema struct {
	files *token.FileSet
	types map[string]*ast.TypeSpec
	said  map[string]bool
	group string
	out   *json.Encoder
}

func main() {
	if err := all(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func all(module string) error {
	archive, err := zip.OpenReader(module)
	if err != nil {
		return err
	}
	defer archive.Close()
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	whole := func(string) bool { return true }
	pod := func(name string) bool { return ofPods[name] }
	for _, of := range []struct {
		group string
		roots []string
		which func(string) bool
	}{
		{"resource/v1", []string{"ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"}, whole},
		{"resource/v1beta2", []string{"DeviceTaintRule"}, whole},
		{"core/v1", []string{"PodSpec", "PodStatus"}, pod},
	} {
		s, err := read(archive.File, of.group, out)
		if err != nil {
			return err
		}
		for _, root := range of.roots {
			if err := s.say(root, of.which); err != nil {
				return err
			}
		}
	}
	return nil
}

// read takes in the declarations of a package.
func read(files []*zip.File, group string, out *json.Encoder) (*schema, error) {
	s := &schema{token.NewFileSet(), map[string]*ast.TypeSpec{}, map[string]bool{}, group, out}
	for _, file := range files {
		directory, name := path.Split(file.Name)
		if !strings.HasSuffix(directory, "/"+group+"/") || !strings.HasSuffix(name, ".go") {
			continue
		}
		text, err := file.Open()
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(s.files, name, text, parser.ParseComments)
		text.Close()
		if err != nil {
			return nil, err
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			if spec, ok := node.(*ast.TypeSpec); ok {
				s.types[spec.Name.Name] = spec
			}
			return true
		})
	}
	return s, nil
}

// say prints the fields of a type for which the function is true, and those of their types.
func (s *schema) say(name string, which func(string) bool) error {
	spec := s.types[name]
	if spec == nil || s.said[name] {
		return nil
	}
	s.said[name] = true
	of, ok := spec.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, member := range of.Fields.List {
		called := nameOf(member)
		if !which(called) {
			continue
		}
		var text bytes.Buffer
		if err := printer.Fprint(&text, s.files, member.Type); err != nil {
			return err
		}
		if err := s.out.Encode(field{s.group + " " + name + "." + called, text.String(), comment(member)}); err != nil {
			return err
		}
		if err := s.sayAll(member.Type); err != nil {
			return err
		}
	}
	return nil
}

// sayAll prints the types of this package that a type is made of.
func (s *schema) sayAll(of ast.Expr) error {
	var err error
	ast.Inspect(of, func(node ast.Node) bool {
		if _, ok := node.(*ast.SelectorExpr); ok {
			return false
		}
		if name, ok := node.(*ast.Ident); ok && err == nil {
			err = s.say(name.Name, func(string) bool { return true })
		}
		return err == nil
	})
	return err
}

// comment returns what is said of a field, without the markers for generators: these say again, in other words, what validation does.
func comment(member *ast.Field) string {
	var words []string
	for line := range strings.Lines(member.Doc.Text()) {
		if !strings.HasPrefix(strings.TrimSpace(line), "+") {
			words = append(words, strings.Fields(line)...)
		}
	}
	return strings.Join(words, " ")
}

// nameOf returns the name of a field in JSON; that of the type, where the field is inlined.
func nameOf(member *ast.Field) string {
	if member.Tag != nil {
		tag := reflect.StructTag(strings.Trim(member.Tag.Value, "`"))
		if name, _, _ := strings.Cut(tag.Get("json"), ","); name != "" {
			return name
		}
	}
	return "(inline)"
}
