package cli

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

func newMigrateCommand(env *Env) *cobra.Command {
	return newGroup("migrate", "Bring the database schema to the version of this program, or look at it",
		newMigrateUpCommand(env), newMigrateDownCommand(env), newMigrateStatusCommand(env))
}

// migrationView is one migration, applied, pending, or just moved.
type migrationView struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	State     string     `json:"state"` // applied, pending or rolled back
	AppliedAt *time.Time `json:"applied_at,omitempty"`
	Seconds   float64    `json:"seconds,omitempty"`
}

// withMigrator runs work with the migrations of this program on the database.
func (env *Env) withMigrator(cmd *cobra.Command, work func(context.Context, *goose.Provider) error) error {
	cfg, err := env.loadConfig(cmd, config.SectionDatabase)
	if err != nil {
		return err
	}
	migrator, err := app.OpenMigrator(cfg.Database, env.logger(cfg.Log))
	if err != nil {
		return err
	}
	return errors.Join(work(cmd.Context(), migrator), migrator.Close())
}

func newMigrateUpCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply every pending migration",
		Long: `Apply every pending migration. Several can be started at once: one works, under
a lock in the database, and the others find nothing left to do.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return env.withMigrator(cmd, func(ctx context.Context, migrator *goose.Provider) error {
			results, err := migrator.Up(ctx)
			if err != nil {
				return fmt.Errorf("migrating up: %w", err)
			}
			if len(results) == 0 {
				fmt.Fprintln(env.Stderr, "nothing to do: the database is up to date")
			}
			if err := printMigrations(env, out, moved(results, "applied")); err != nil {
				return err
			}
			env.sayUpgrade(results)
			return nil
		})
	}
	return cmd
}

// firstHolding is the migration that stops older programs: they do not know of held records.
const firstHolding = 10

// sayUpgrade prints the order of an upgrade's steps where older programs must not go on. A database that is new has none.
func (env *Env) sayUpgrade(results []*goose.MigrationResult) {
	for _, r := range results {
		if r.Source.Version == firstHolding && results[0].Source.Version > 1 {
			fmt.Fprintf(env.Stderr, `Programs that know only schema versions below %d cannot work on this database, also with --allow-newer-schema.
The order of this upgrade is:
  1. Stop every program of the old version: run, run loyalty, run notifications, rebuild, replay and redrives.
  2. orderprojector migrate up (done just now).
  3. Start the new programs.
Old programs that still run fail with errors from now on, and change nothing: stop them.
`, firstHolding)
		}
	}
}

func newMigrateDownCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Roll back the newest migration, or all above --to",
		Long: `Roll back the newest migration, or all above --to. This deletes tables with
what is in them. It needs --yes.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	to := cmd.Flags().Int64("to", 0, "schema version to go back to (default one step)")
	yes := cmd.Flags().Bool("yes", false, "really do it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return env.withMigrator(cmd, func(ctx context.Context, migrator *goose.Provider) error {
			target, plan, err := planDown(ctx, migrator, *to, cmd.Flags().Changed("to"))
			if err != nil {
				return err
			}
			if len(plan) == 0 {
				fmt.Fprintln(env.Stderr, "nothing to do")
				return printMigrations(env, out, plan)
			}
			if !*yes {
				return &Error{Code: ExitUsage, Err: fmt.Errorf("this would roll back %s", names(plan)), Advice: "add --yes to do it; it deletes tables with what is in them"}
			}
			results, err := migrator.DownTo(ctx, target)
			if err != nil {
				return fmt.Errorf("migrating down: %w", err)
			}
			return printMigrations(env, out, moved(results, "rolled back"))
		})
	}
	return cmd
}

// planDown finds the version to go back to and what would be rolled back.
func planDown(ctx context.Context, migrator *goose.Provider, to int64, explicit bool) (int64, []migrationView, error) {
	status, err := migrator.Status(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("reading the migrations' status: %w", err)
	}
	if explicit && to < 0 {
		return 0, nil, usageError("--to %d is negative", to)
	}
	plan := []migrationView{}
	for i := len(status) - 1; i >= 0; i-- {
		s := status[i]
		if s.State != goose.StateApplied || explicit && s.Source.Version <= to {
			continue
		}
		plan = append(plan, migrationView{Version: s.Source.Version, Name: path.Base(s.Source.Path), State: "applied"})
		if !explicit {
			to = 0
			for _, below := range status[:i] {
				if below.State == goose.StateApplied {
					to = below.Source.Version
				}
			}
			break
		}
	}
	return to, plan, nil
}

func newMigrateStatusCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print which migrations are applied",
		Args:  cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return env.withMigrator(cmd, func(ctx context.Context, migrator *goose.Provider) error {
			status, err := migrator.Status(ctx)
			if err != nil {
				return fmt.Errorf("reading the migrations' status: %w", err)
			}
			views := make([]migrationView, len(status))
			for i, s := range status {
				views[i] = migrationView{Version: s.Source.Version, Name: path.Base(s.Source.Path), State: string(s.State)}
				if s.State == goose.StateApplied {
					at := s.AppliedAt.UTC()
					views[i].AppliedAt = &at
				}
			}
			current, target, err := migrator.GetVersions(ctx)
			if err != nil {
				return fmt.Errorf("reading the schema version: %w", err)
			}
			if current > target {
				fmt.Fprintf(env.Stderr, "the database is newer than this program: schema version %d, known up to %d\n", current, target)
			}
			return printMigrations(env, out, views)
		})
	}
	return cmd
}

func moved(results []*goose.MigrationResult, state string) []migrationView {
	views := make([]migrationView, len(results))
	for i, r := range results {
		views[i] = migrationView{Version: r.Source.Version, Name: path.Base(r.Source.Path), State: state, Seconds: r.Duration.Seconds()}
	}
	return views
}

func names(views []migrationView) string {
	text := ""
	for i, v := range views {
		if i > 0 {
			text += ", "
		}
		text += v.Name
	}
	return text
}

func printMigrations(env *Env, out *output, views []migrationView) error {
	return out.print(env.Stdout, views, func(t *tableWriter) {
		if len(views) == 0 {
			return
		}
		t.row("VERSION", "STATE", "NAME", "APPLIED AT")
		for _, v := range views {
			t.row(strconv.FormatInt(v.Version, 10), v.State, v.Name, timeCell(v.AppliedAt))
		}
	})
}
