// Command schema prints what a version of k8s.io/api documents about claims and devices: every field of resource.k8s.io, and those of Pods
// that are about claims, with type and comment; every type with its comment, and its values, if it has some. Its argument is the archive of the module, as the go command has downloaded it; each line is
// JSON. It reads the declarations and compiles nothing, so that a version for a newer Go can be read.
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path"
	"reflect"
	"slices"
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
	files    *token.FileSet
	types    map[string]*ast.TypeSpec
	comments map[string]string
	// The constants of each type: its values, with what is said of them.
	values map[string][]string
	said   map[string]bool
	group  string
	out    *json.Encoder
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
		{"core/v1", []string{"ResourceRequirements"}, func(name string) bool { return name == "claims" }},
	} {
		s, err := read(archive.File, of.group, out)
		if err != nil {
			return err
		}
		for _, root := range of.roots {
			if s.types[root] == nil {
				return fmt.Errorf("%s has no %s", of.group, root)
			}
			if err := s.say(root, of.which); err != nil {
				return err
			}
		}
	}
	return nil
}

// read takes in the declarations of a package.
func read(files []*zip.File, group string, out *json.Encoder) (*schema, error) {
	s := &schema{
		files: token.NewFileSet(), types: map[string]*ast.TypeSpec{}, comments: map[string]string{},
		values: map[string][]string{}, said: map[string]bool{}, group: group, out: out,
	}
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
		for _, declared := range parsed.Decls {
			if general, ok := declared.(*ast.GenDecl); ok {
				s.declared(general)
			}
		}
	}
	return s, nil
}

// declared takes in types and constants.
func (s *schema) declared(of *ast.GenDecl) {
	for _, spec := range of.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.types[spec.Name.Name] = spec
			doc := spec.Doc
			if doc == nil {
				doc = of.Doc
			}
			s.comments[spec.Name.Name] = comment(doc)
		case *ast.ValueSpec:
			kind, ok := spec.Type.(*ast.Ident)
			if !ok || of.Tok != token.CONST {
				continue
			}
			for _, value := range spec.Values {
				if literal, ok := value.(*ast.BasicLit); ok {
					s.values[kind.Name] = append(s.values[kind.Name], literal.Value+" "+comment(spec.Doc))
				}
			}
		}
	}
}

// say prints the fields of a type for which the function is true, and those of their types.
func (s *schema) say(name string, which func(string) bool) error {
	spec := s.types[name]
	if spec == nil || s.said[name] {
		return nil
	}
	s.said[name] = true
	values := strings.Join(slices.Sorted(slices.Values(s.values[name])), "; ")
	if err := s.out.Encode(field{s.group + " " + name, values, s.comments[name]}); err != nil {
		return err
	}
	of, ok := spec.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, member := range of.Fields.List {
		var text bytes.Buffer
		if err := printer.Fprint(&text, s.files, member.Type); err != nil {
			return err
		}
		called := cmp.Or(nameOf(member), "("+text.String()+")")
		if !which(called) {
			continue
		}
		if err := s.out.Encode(field{s.group + " " + name + "." + called, text.String(), comment(member.Doc)}); err != nil {
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

// comment returns what is said of something, without the markers for generators: these say again, in other words, what validation does.
func comment(doc *ast.CommentGroup) string {
	var words []string
	for line := range strings.Lines(doc.Text()) {
		if !strings.HasPrefix(strings.TrimSpace(line), "+") {
			words = append(words, strings.Fields(line)...)
		}
	}
	return strings.Join(words, " ")
}

// nameOf returns the name of a field in JSON. An inlined field has none.
func nameOf(member *ast.Field) string {
	if member.Tag != nil {
		tag := reflect.StructTag(strings.Trim(member.Tag.Value, "`"))
		if name, _, _ := strings.Cut(tag.Get("json"), ","); name != "" {
			return name
		}
	}
	return ""
}
