package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/notification"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newNotificationsCommand(env *Env) *cobra.Command {
	return newGroup("notifications", "Look at notifications, and decide about those that are not sent",
		newNotificationsListCommand(env),
		newNotificationsActionCommand(env, notification.Retry, "retry", "Have notifications sent: failed, unknown, suppressed or cancelled ones",
			`Have notifications sent that failed, of which the outcome is unknown, that were suppressed or cancelled. Where the receiver
can be asked, it is asked first whether it has acted already. Failures are counted anew.`),
		newNotificationsActionCommand(env, notification.Cancel, "cancel", "Have notifications never sent: pending, failed or unknown ones",
			`Have notifications never sent that are pending, failed, or of which the outcome is unknown. One that is being sent
right now is not cancelled. "retry" takes it back.`))
}

func notificationStates() []string {
	var names []string
	for _, s := range notification.States() {
		names = append(names, string(s))
	}
	return names
}

func newNotificationsListCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List notifications by event ID",
		Long: `List notifications by event ID. Pages are asked for with --after and the last event ID of the page before. What is due
never ("-") is finished, or waits for an operator.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	var filter pgstore.NotificationFilter
	flags := cmd.Flags()
	flags.StringSliceVar(&filter.States, "state", nil, "only these states: "+strings.Join(notificationStates(), ", "))
	flags.StringVar(&filter.Order, "order", "", "only notifications of this order")
	flags.StringVar(&filter.After, "after", "", "only event IDs behind this one")
	flags.IntVar(&filter.Limit, "limit", 50, fmt.Sprintf("at most so many, up to %d", maxListLimit))
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(notificationStates(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, state := range filter.States {
			if err := checkState(state); err != nil {
				return err
			}
		}
		if filter.Limit < 1 || filter.Limit > maxListLimit {
			return usageError("--limit %d is not between 1 and %d", filter.Limit, maxListLimit)
		}
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			all, more, err := reader.Notifications(ctx, filter)
			if err != nil {
				return err
			}
			if err := out.print(env.Stdout, all, func(t *tableWriter) {
				t.row("EVENT", "ORDER", "STATE", "ATTEMPTS", "FAILURES", "DUE", "SENT", "STATUS", "ERROR")
				for _, n := range all {
					status := "-"
					if n.LastStatus != nil {
						status = strconv.Itoa(*n.LastStatus)
					}
					t.row(n.EventID, n.OrderID, n.State, strconv.Itoa(n.Attempts), strconv.Itoa(n.Failures), timeCell(n.DueAt), timeCell(n.SentAt), status,
						clipCell(optionalCell(n.LastError), 80))
				}
			}); err != nil {
				return err
			}
			if more {
				env.sayMore(all[len(all)-1].EventID)
			}
			return nil
		})
	}
	return cmd
}

func checkState(state string) error {
	if !slices.Contains(notificationStates(), state) {
		return usageError("--state %q is not one of %s", state, strings.Join(notificationStates(), ", "))
	}
	return nil
}

// newNotificationsActionCommand makes the command of an operator's action.
func newNotificationsActionCommand(env *Env, on notification.Event, name, short, long string) *cobra.Command {
	var from []string
	for _, s := range notification.From(on) {
		from = append(from, string(s))
	}
	cmd := &cobra.Command{
		Use: name + " (EVENT_ID... | --state STATE)", Short: short, Long: long,
		Example: fmt.Sprintf("  orderprojector notifications %s 0198c0de-0000-7000-8000-000000000001 --comment %q\n  orderprojector notifications %s --state failed --comment %q",
			name, "asked the receiver", name, "their bad release, see ticket 4"),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, on == notification.Retry)
	var sel pgstore.NotificationSelection
	cmd.Flags().StringVar(&sel.State, "state", "", "all of this state: "+strings.Join(from, ", "))
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(from, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch sel.EventIDs = args; {
		case len(args) == 0 && sel.State == "":
			return usageError("name event IDs, or --state")
		case len(args) > 0 && sel.State != "":
			return usageError("event IDs and --state exclude each other")
		case sel.State != "" && !slices.Contains(from, sel.State):
			return usageError("--state %q is not one of %s", sel.State, strings.Join(from, ", "))
		}
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withStore(cmd, func(ctx context.Context, _ config.Config, store *pgstore.Store) error {
			changes := []pgstore.NotificationChange{}
			refused := 0
			err := store.OperateNotifications(ctx, on, sel, by, func(c pgstore.NotificationChange) {
				if changes = append(changes, c); c.Problem != "" {
					refused++
				}
			})
			if err != nil {
				return translate(err)
			}
			if err := out.print(env.Stdout, changes, func(t *tableWriter) {
				t.row("EVENT", "ORDER", "FROM", "TO", "PROBLEM")
				for _, c := range changes {
					t.row(c.EventID, c.OrderID, c.From, c.To, textCell(c.Problem))
				}
			}); err != nil {
				return err
			}
			if refused > 0 {
				return &Error{Code: ExitFailed, Err: fmt.Errorf("%d of %d notifications are left as they are", refused, len(changes)), Advice: "it can be done to: " + strings.Join(from, ", ")}
			}
			return nil
		})
	}
	return cmd
}
