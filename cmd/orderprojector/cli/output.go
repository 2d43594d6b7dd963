package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// output is a command's --output flag.
type output struct {
	format  string
	formats []string
}

// addOutputFlag adds --output with table, json, yaml and the extra formats.
func addOutputFlag(cmd *cobra.Command, extra ...string) *output {
	o := &output{format: "table", formats: append([]string{"table", "json", "yaml"}, extra...)}
	cmd.Flags().VarP(o, "output", "o", "output format: "+strings.Join(o.formats, ", "))
	// The error is for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats, cobra.ShellCompDirectiveNoFileComp))
	return o
}

func (o *output) String() string { return o.format }
func (o *output) Type() string   { return "format" }
func (o *output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("%q is not one of %s", format, strings.Join(o.formats, ", "))
	}
	o.format = format
	return nil
}

// print writes data as JSON or YAML, with the same names and order, or calls
// table to write it for people.
func (o *output) print(w io.Writer, data any, table func(*tableWriter)) error {
	switch o.format {
	case "json":
		return printJSON(w, data)
	case "yaml":
		return printYAML(w, data)
	}
	t := &tableWriter{tab: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	table(t)
	if t.err != nil {
		return t.err
	}
	return t.tab.Flush()
}

func printJSON(w io.Writer, data any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(data)
}

// printYAML goes through JSON, which is YAML too: one set of field names, in
// the order of the struct.
func printYAML(w io.Writer, data any) error {
	var buf bytes.Buffer
	if err := printJSON(&buf, data); err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(buf.Bytes(), &node); err != nil {
		return err
	}
	blockStyle(&node)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&node); err != nil {
		return err
	}
	return e.Close()
}

// blockStyle drops JSON's braces, brackets and quotes; the encoder quotes
// again what would otherwise read as something else.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		blockStyle(child)
	}
}

// tableWriter writes aligned columns and keeps the first error.
type tableWriter struct {
	tab *tabwriter.Writer
	err error
}

// row writes one line of cells.
func (t *tableWriter) row(cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c)
	}
	t.line(strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

// field writes a name and its value.
func (t *tableWriter) field(name, value string) { t.row(name+":", value) }

// section ends the columns so far and writes a title.
func (t *tableWriter) section(title string) {
	t.flush()
	t.line("")
	t.line(title)
	t.flush()
}

func (t *tableWriter) flush() {
	if t.err == nil {
		t.err = t.tab.Flush()
	}
}

func (t *tableWriter) line(s string) {
	if t.err == nil {
		_, t.err = fmt.Fprintln(t.tab, s)
	}
}

// printable keeps what came in with an event from commanding the terminal.
func printable(s string) string {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			quoted := strconv.Quote(s)
			return quoted[1 : len(quoted)-1]
		}
	}
	return s
}
