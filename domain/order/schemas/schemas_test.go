package schemas_test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/domain/order/schemas"
)

var update = flag.Bool("update", false, "write the documentation instead of checking it")

func all(t *testing.T) []schemas.Schema {
	t.Helper()
	all, err := schemas.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every type has a schema of version 1, and versions without a gap.
func TestEveryTypeHasASchema(t *testing.T) {
	t.Parallel()
	versions := map[order.Type]int{}
	for _, s := range all(t) {
		if versions[s.Type]++; versions[s.Type] != s.Version {
			t.Errorf("%s follows version %d", s.Name(), versions[s.Type]-1)
		}
	}
	if got, want := slices.Sorted(maps.Keys(versions)), slices.Sorted(slices.Values(order.Types())); !slices.Equal(got, want) {
		t.Errorf("schemas of %v, want of %v", got, want)
	}
}

// A file is whole by itself, so that a producer needs no other: what several define under
// one name has to be the same, and a file says the name of its type.
func TestDefinitionsAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	first := map[string]json.RawMessage{}
	for _, s := range all(t) {
		var doc struct {
			ID         string                     `json:"$id"`
			Title      string                     `json:"title"`
			Properties map[string]json.RawMessage `json:"properties"`
			Required   json.RawMessage            `json:"required"`
			Defs       map[string]json.RawMessage `json:"$defs"`
		}
		if err := json.Unmarshal(s.Document, &doc); err != nil {
			t.Fatal(err)
		}
		if doc.Title != s.Name() || doc.ID != "urn:orderprojector:"+s.Name() {
			t.Errorf("%s has the ID %s and the title %s", s.Name(), doc.ID, doc.Title)
		}
		delete(doc.Properties, "type")
		delete(doc.Defs, "data")
		doc.Defs["required"] = doc.Required
		for name, property := range doc.Properties {
			doc.Defs["property "+name] = property
		}
		for name, definition := range doc.Defs {
			if first[name] == nil {
				first[name] = definition
			}
			if diff := cmp.Diff(string(first[name]), string(definition)); diff != "" {
				t.Errorf("%s defines %s in another way:\n%s", s.Name(), name, diff)
			}
		}
	}
}

//go:embed testdata/events.md.tmpl
var documentTemplate string

// The documentation of the events is what the schemas say.
func TestDocumentIsCurrent(t *testing.T) {
	path := filepath.Join("..", "..", "..", "docs", "events.md")
	want := document(t)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is out of date, run `go generate ./domain/order/schemas` (-want +got):\n%s", path, diff)
	}
}

// section is one schema as the page shows it.
type section struct {
	schemas.Schema
	schemas.Description
}

// JSON is the example, one member of the envelope a line.
func (s section) JSON() (string, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, s.Example); err != nil {
		return "", err
	}
	return strings.Replace(b.String(), `,"data":`, ",\n \"data\":", 1), nil
}

func (s section) States() string { return states(s.Type) }

// When is the rule about the amount.
func (s section) When() string {
	var rules []string
	for _, move := range order.Transitions() {
		if move.Event == s.Type && move.When != "" && !slices.Contains(rules, move.When) {
			rules = append(rules, move.When)
		}
	}
	if len(rules) == 0 {
		return ""
	}
	return "It takes " + strings.Join(rules, ", or ") + "."
}

func states(t order.Type) string {
	var names []string
	for _, move := range order.Transitions() {
		name := string(move.From)
		if move.From == order.None {
			name = "(none)"
		}
		if move.Event == t && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

type typeVersions struct {
	Type     order.Type
	versions []string
}

func (v typeVersions) Several() bool    { return len(v.versions) > 1 }
func (v typeVersions) Versions() string { return strings.Join(v.versions, " and ") }

func document(t *testing.T) []byte {
	t.Helper()
	var sections []section
	var types []typeVersions
	for _, s := range all(t) {
		d, err := s.Describe()
		if err != nil {
			t.Fatal(err)
		}
		sections = append(sections, section{s, d})
		if s.Version == 1 {
			types = append(types, typeVersions{Type: s.Type})
		}
		last := &types[len(types)-1]
		last.versions = append(last.versions, strings.TrimPrefix(s.Name(), string(s.Type)+".v"))
	}
	page, err := template.New("events").Parse(documentTemplate)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := page.Execute(&b, map[string]any{"Schemas": sections, "Types": types, "Limits": schemas.Limits()}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
