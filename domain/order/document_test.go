package order_test

import (
	"bytes"
	stdcmp "cmp"
	_ "embed"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"

	"github.com/orderprojector/orderprojector/domain/order"
)

var update = flag.Bool("update", false, "write the documentation instead of checking it")

//go:embed testdata/state-machine.md.tmpl
var documentTemplate string

// The documentation of the state machine is what the code says.
func TestDocumentIsCurrent(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "state-machine.md")
	want := document(t)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is out of date, run `go generate ./domain/order` (-want +got):\n%s", path, diff)
	}
}

func document(t *testing.T) []byte {
	t.Helper()
	page, err := template.New("state-machine").Parse(documentTemplate)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err = page.Execute(&b, map[string]any{"Rows": rows(order.Transitions()), "Diagram": order.Mermaid()})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// row is the transitions of one event under one condition.
type row struct {
	Event order.Type
	When  string
	from  []order.State
	to    []order.State
}

func rows(all []order.Transition) []row {
	var rows []row
	for _, t := range all {
		i := slices.IndexFunc(rows, func(r row) bool { return r.Event == t.Event && r.When == t.When })
		if i < 0 {
			i = len(rows)
			rows = append(rows, row{Event: t.Event, When: t.When})
		}
		rows[i].from = append(rows[i].from, t.From)
		rows[i].to = append(rows[i].to, t.To)
	}
	return rows
}

func (r row) From() string { return list(r.from) }

func (r row) To() string {
	if to := slices.Compact(slices.Clone(r.to)); len(to) == 1 {
		return list(to)
	}
	if slices.Equal(r.from, r.to) {
		return "unchanged"
	}
	return list(r.to)
}

func list(states []order.State) string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = stdcmp.Or(string(s), "(none)")
	}
	return strings.Join(names, ", ")
}
