package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/domain/order/schemas"
	"github.com/orderprojector/orderprojector/projection"
)

func newSchemaCommand(env *Env) *cobra.Command {
	return newGroup("schema", "Show the schemas of events, and check events before they are published",
		newSchemaListCommand(env), newSchemaShowCommand(env), newSchemaCheckCommand(env))
}

// schemaView is a schema in a list.
type schemaView struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Version int    `json:"version"`
	Newest  bool   `json:"newest"`
	Summary string `json:"summary"`
}

func newSchemaListCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the event types and schema versions that are read",
		Args:  cobra.NoArgs,
	}
	out := addOutputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		all, err := schemas.All()
		if err != nil {
			return err
		}
		views := make([]schemaView, 0, len(all))
		for i, s := range all {
			d, err := s.Describe()
			if err != nil {
				return err
			}
			newest := i == len(all)-1 || all[i+1].Type != s.Type
			views = append(views, schemaView{s.Name(), string(s.Type), s.Version, newest, d.Summary})
		}
		return out.print(env.Stdout, views, func(t *tableWriter) {
			t.row("SCHEMA", "NEWEST", "WHAT HAPPENED")
			for _, v := range views {
				t.row(v.Name, strconv.FormatBool(v.Newest), v.Summary)
			}
		})
	}
	return cmd
}

func newSchemaShowCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show TYPE",
		Short: "Show the schema of an event type",
		Long: `Show the data of an event type and an example. Without a version behind the type, version 1 is
meant, as in events. --output json prints the JSON Schema (2020-12) of the plain JSON event, whole by itself; "#/$defs/data" in
it is the schema of the data alone, which is the same in a CloudEvent.`,
		Example: `  orderprojector schema show OrderCreated.v2
  orderprojector schema show OrderPaid.v1 --output json > OrderPaid.v1.schema.json`,
		Args: cobra.ExactArgs(1),
	}
	out := addOutputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		s, err := findSchema(args[0])
		if err != nil {
			return err
		}
		d, err := s.Describe()
		if err != nil {
			return err
		}
		return out.print(env.Stdout, json.RawMessage(s.Document), func(t *tableWriter) { schemaTable(t, s, d) })
	}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		all, err := schemas.All()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return schemaNames(all), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func findSchema(written string) (schemas.Schema, error) {
	all, err := schemas.All()
	if err != nil {
		return schemas.Schema{}, err
	}
	name, version := projection.SplitType(written)
	for _, s := range all {
		if s.Type == name && s.Version == version {
			return s, nil
		}
	}
	return schemas.Schema{}, notFoundError("there is no schema %q; there are %s", written, strings.Join(schemaNames(all), ", "))
}

func schemaNames(all []schemas.Schema) []string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name()
	}
	return names
}

func schemaTable(t *tableWriter, s schemas.Schema, d schemas.Description) {
	t.field("schema", s.Name())
	t.field("happened", d.Summary)
	t.section("DATA")
	if len(d.Fields) == 0 {
		t.row("an object without members of its own")
	} else {
		t.row("FIELD", "TYPE", "NEEDED", "MEANING")
	}
	for _, f := range d.Fields {
		needed := "optional"
		if f.Required {
			needed = "required"
		}
		t.row(f.Path, f.Type, needed, f.Summary)
	}
	t.section("EXAMPLE")
	for line := range strings.Lines(indented(d.Example)) {
		t.line(strings.TrimSuffix(line, "\n"))
	}
}

func indented(raw []byte) string {
	text, err := json.MarshalIndent(json.RawMessage(raw), "", "  ")
	if err != nil {
		return fmt.Sprintf("%q", raw)
	}
	return string(text)
}
