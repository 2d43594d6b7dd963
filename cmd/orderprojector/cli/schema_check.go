package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection/schemacheck"
)

// maxCheckedBytes bounds a file of events, which is read at once.
const maxCheckedBytes = 64 << 20

// checkView is what becomes of the events of a file.
type checkView struct {
	Accepted    int                `json:"accepted"`
	NotAccepted int                `json:"not_accepted"`
	Events      []checkedEventView `json:"events"`
}

type checkedEventView struct {
	Line      int           `json:"line"`
	Format    string        `json:"format"`
	Verdict   string        `json:"verdict"`
	Type      string        `json:"type,omitempty"`
	OrderID   string        `json:"order_id,omitempty"`
	EventID   string        `json:"event_id,omitempty"`
	Version   int64         `json:"version,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Problems  []problemView `json:"problems"`
	Undecided []string      `json:"undecided"`
}

type problemView struct {
	Path     string `json:"path"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

func newSchemaCheckCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether events will be accepted, and why not",
		Long: `Check the events in a file, "-" for standard input: plain JSON or CloudEvents in structured mode, one
event, several one after another, or one a line. For a CloudEvent in binary mode, check the same event in structured mode.
The verdict is that of the projection's own decoder; for what is not accepted, every place is named that is wrong. What only the order's
state or the record around the event decides is listed as not decided here. Nothing is connected to.

The exit code is 0 when every event is accepted, and 1 when one is not.`,
		Example: `  orderprojector schema check event.json
  my-service --print-events | orderprojector schema check - --output json`,
		Args: cobra.ExactArgs(1),
	}
	out := addOutputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		file, err := env.readFile(args[0], maxCheckedBytes)
		if err != nil {
			return err
		}
		checker, err := schemacheck.New()
		if err != nil {
			return err
		}
		view := checkView{Events: []checkedEventView{}}
		for _, in := range schemacheck.Split(file) {
			v := checker.Check(in.Value)
			if v.Verdict == schemacheck.Accepted {
				view.Accepted++
			} else {
				view.NotAccepted++
			}
			view.Events = append(view.Events, checkedEvent(in.Line, v))
		}
		if len(view.Events) == 0 {
			return &Error{Code: ExitFailed, Err: fmt.Errorf("%s holds no event", args[0]), Advice: "a null value is a tombstone: it is counted and changes nothing"}
		}
		if err := out.print(env.Stdout, view, func(t *tableWriter) { checkTable(t, view) }); err != nil {
			return err
		}
		if view.NotAccepted > 0 {
			return &Error{
				Code: ExitFailed, Err: fmt.Errorf("%d of %d events would not be accepted", view.NotAccepted, len(view.Events)),
				Advice: "`orderprojector schema show TYPE` shows what is expected",
			}
		}
		return nil
	}
	return cmd
}

func checkedEvent(line int, v schemacheck.Verdict) checkedEventView {
	view := checkedEventView{
		Line: line, Format: v.Format, Verdict: v.Verdict, Type: v.Type, OrderID: v.OrderID, EventID: v.EventID, Version: v.Version,
		Reason: v.Reason, Problems: []problemView{}, Undecided: append([]string{}, v.Undecided...),
	}
	for _, p := range v.Problems {
		view.Problems = append(view.Problems, problemView(p))
	}
	return view
}

func checkTable(t *tableWriter, view checkView) {
	t.row("LINE", "VERDICT", "TYPE", "ORDER", "VERSION", "EVENT", "FORMAT")
	for _, e := range view.Events {
		version := "-"
		if e.Version > 0 {
			version = strconv.FormatInt(e.Version, 10)
		}
		t.row(strconv.Itoa(e.Line), e.Verdict, textCell(e.Type), textCell(e.OrderID), version, textCell(e.EventID), e.Format)
	}
	if view.NotAccepted > 0 {
		t.section("NOT ACCEPTED")
		t.row("LINE", "AT", "EXPECTED", "FOUND")
		for _, e := range view.Events {
			for _, p := range e.Problems {
				t.row(strconv.Itoa(e.Line), textCell(p.Path), p.Expected, p.Found)
			}
		}
	}
	const shown = 3 // events are enough to tell what it is about
	switch {
	case view.Accepted > shown:
		t.section("NOT DECIDED HERE")
		t.row("whether each order's state allows the event, in its turn; --output json says what each depends on")
	case view.Accepted > 0:
		t.section("NOT DECIDED HERE")
		for _, e := range view.Events {
			for _, note := range e.Undecided {
				t.row(strconv.Itoa(e.Line), note)
			}
		}
	}
}
