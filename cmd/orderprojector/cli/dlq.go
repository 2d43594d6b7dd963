package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newDLQCommand(env *Env) *cobra.Command {
	return newGroup("dlq", "Look at dead letters and work them off",
		newDLQListCommand(env), newDLQShowCommand(env), newDLQGroupCommand(env), newDLQRedriveCommand(env), newDLQDiscardCommand(env),
		newDLQRestoreCommand(env), newDLQAssignCommand(env), newDLQExportCommand(env), newDLQPurgeCommand(env))
}

var (
	letterReasons  = []string{"invalid", "conflict", "unsupported", "illegal"}
	letterStatuses = []string{"open", "redriven", "superseded", "discarded", "exhausted"}
)

// letterFilterFlags select letters to look at.
type letterFilterFlags struct {
	filter       pgstore.LetterFilter
	statuses     []string
	since, until timeValue
}

// addLetterFilterFlags adds the filters of letters. Without --status, what waits for somebody is looked at.
func addLetterFilterFlags(cmd *cobra.Command) *letterFilterFlags {
	f := &letterFilterFlags{}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.statuses, "status", []string{"open", "exhausted"}, "statuses, or all: "+strings.Join(letterStatuses, ", "))
	flags.StringVar(&f.filter.Reason, "reason", "", "only this reason: "+strings.Join(letterReasons, ", "))
	flags.StringVar(&f.filter.Order, "order", "", "only letters of this order")
	flags.StringVar(&f.filter.Type, "type", "", "only events of this type, as written")
	flags.StringVar(&f.filter.Owner, "owner", "", "only letters of this owner")
	flags.Var(&f.since, "since", "only what failed first then or later: an RFC 3339 time, or a duration back such as 2h or 7d")
	flags.Var(&f.until, "until", "only what failed first before then")
	flags.BoolVar(&f.filter.Overdue, "overdue", false, "only what waits for longer than its deadline")
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.FixedCompletions(letterReasons, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(append([]string{"all"}, letterStatuses...), cobra.ShellCompDirectiveNoFileComp))
	return f
}

func (f *letterFilterFlags) get(cmd *cobra.Command) (pgstore.LetterFilter, error) {
	filter := f.filter
	filter.Topic = givenTopic(cmd)
	if err := checkReason(filter.Reason); err != nil {
		return filter, err
	}
	if !slices.Equal(f.statuses, []string{"all"}) {
		for _, s := range f.statuses {
			if !slices.Contains(letterStatuses, s) {
				return filter, usageError("--status %q is not all or one of %s", s, strings.Join(letterStatuses, ", "))
			}
		}
		filter.Statuses = f.statuses
	}
	filter.Since, filter.Until = f.since.at, f.until.at
	return filter, nil
}

// givenTopic is the topic that is asked for on the command line: letters of an old one are rare, but there.
func givenTopic(cmd *cobra.Command) string {
	if flag := cmd.Flags().Lookup("topic"); flag.Changed {
		return flag.Value.String()
	}
	return ""
}

func checkReason(reason string) error {
	if reason != "" && !slices.Contains(letterReasons, reason) {
		return usageError("--reason %q is not one of %s", reason, strings.Join(letterReasons, ", "))
	}
	return nil
}
