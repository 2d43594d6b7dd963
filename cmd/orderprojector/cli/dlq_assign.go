package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// assignFlags say who takes care of something, and until when.
type assignFlags struct {
	owner string
	due   dueValue
}

func addAssignFlags(cmd *cobra.Command) *assignFlags {
	f := &assignFlags{}
	cmd.Flags().StringVar(&f.owner, "owner", "", `who takes care of it ("" for nobody)`)
	cmd.Flags().Var(&f.due, "due", "until when: an RFC 3339 time, or a duration from now on such as 4h or 2d")
	return f
}

func (f *assignFlags) get(cmd *cobra.Command) (pgstore.Assignment, error) {
	var a pgstore.Assignment
	if cmd.Flags().Changed("owner") {
		a.Owner = &f.owner
	}
	if cmd.Flags().Changed("due") {
		due := f.due.at.UTC().Truncate(time.Second)
		a.DueAt = &due
	}
	if a.Owner == nil && a.DueAt == nil {
		return a, usageError("--owner or --due is needed")
	}
	return a, nil
}

func newDLQAssignCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "assign ID... --owner NAME --due TIME --comment TEXT",
		Short: "Say who takes care of dead letters, and until when",
		Args:  cobra.MinimumNArgs(1),
	}
	addOperatorFlags(cmd)
	byFlags := addByFlags(cmd, false)
	assign := addAssignFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		a, err := assign.get(cmd)
		if err != nil {
			return err
		}
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			for _, id := range ids {
				if err := o.store.AssignLetter(ctx, o.group(), id, a, by); err != nil {
					return err
				}
				fmt.Fprintf(env.Stdout, "dead letter %d is assigned\n", id)
			}
			return nil
		})
	}
	return cmd
}
