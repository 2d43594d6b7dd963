package cli

import (
	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
)

func newVersionCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
	}
	out := addOutputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		build := app.ReadBuild()
		schema, err := app.SchemaVersion()
		if err != nil {
			return err
		}
		data := struct {
			app.Build
			SchemaVersion int64 `json:"schema_version"`
		}{build, schema}
		return out.print(env.Stdout, data, func(t *tableWriter) {
			t.row("orderprojector", build.Version)
			t.field("revision", textCell(build.Revision))
			t.field("go", build.GoVersion+" "+build.Platform)
			t.field("schema", versionCell(&schema))
		})
	}
	return cmd
}
