// Package schemas holds the JSON Schema (2020-12) of every type of event and every schema
// version of it, each a file that is whole by itself. A file describes the plain JSON envelope; "#/$defs/data" in it is the
// data alone, which is the same in a CloudEvent.
//
// The files are here, and not among the documentation, because they are part of the
// program: it shows them and checks events with them. They lie beside the types that they describe, and
// import nothing.
//
//go:generate go test -run TestDocumentIsCurrent -update .
package schemas

import (
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/orderprojector/orderprojector/domain/order"
)

//go:embed *.schema.json
var files embed.FS

const extension = ".schema.json"

// Schema is the schema of one type and version.
type Schema struct {
	Type     order.Type
	Version  int
	Document []byte // JSON; not to be changed
}

// Name returns type and version as events have them, such as "OrderPaid.v1".
func (s Schema) Name() string { return fmt.Sprintf("%s.v%d", s.Type, s.Version) }

// All returns every schema: types in the order of an order's life, versions in theirs. An error means that
// the program was built wrongly.
func All() ([]Schema, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("listing the embedded schemas: %w", err)
	}
	all := make([]Schema, 0, len(entries))
	for _, entry := range entries {
		name, version, _ := strings.Cut(strings.TrimSuffix(entry.Name(), extension), ".v")
		s := Schema{Type: order.Type(name)}
		if s.Version, err = strconv.Atoi(version); err != nil {
			return nil, fmt.Errorf("embedded schema %s: its name is not Type.vN%s", entry.Name(), extension)
		}
		if s.Document, err = files.ReadFile(entry.Name()); err != nil {
			return nil, fmt.Errorf("reading an embedded schema: %w", err)
		}
		all = append(all, s)
	}
	types := order.Types()
	slices.SortFunc(all, func(a, b Schema) int {
		return cmp.Or(cmp.Compare(slices.Index(types, a.Type), slices.Index(types, b.Type)), cmp.Compare(a.Version, b.Version))
	})
	return all, nil
}
