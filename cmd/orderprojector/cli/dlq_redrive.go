package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection"
)

// redriveShown is how many letters a redrive lists one by one.
const redriveShown = 50

// redriveView is what a redrive did, or would do.
type redriveView struct {
	Executed bool `json:"executed"`
	projection.RedriveReport
	Letters []projection.RedriveResult `json:"letters"` // the first ones
	Reasons map[string]int64           `json:"refused_again,omitempty"`
}

func newDLQRedriveCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive [ID...]",
		Short: "Decide dead letters again, with the program and the rules as they are now",
		Long: `Decide dead letters again: those of the IDs, those of the filters, or --all that are open. An order's letters
are tried one after another by version, each on its order's locked row; what was parked behind them
follows. What is applied, repeated or parked closes its letter; what is refused again stays open with one attempt
more and, after --max-attempts, is exhausted: then it is tried again only by its ID. Nothing is published.

It is a dry run unless --execute is given: the same work, rolled back. The selection is frozen when it
begins; an interrupted redrive is continued with --resume.

Letters of the group of a consumer beside the projector (--group) are decided by that consumer, one by one; an interrupted
redrive of those is simply done again.

--with FILE gives an event, as plain JSON, that stands in for the record of one letter, now and whenever
the order is folded again ("-" reads standard input).`,
		Example: `  orderprojector dlq redrive 17
  orderprojector dlq redrive 17 --with event.json --execute --comment "amount corrected, see ticket 4"
  orderprojector dlq redrive --reason unsupported --execute --rate 500
  orderprojector dlq redrive --resume 3 --execute`,
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, true)
	execute := addExecuteFlag(cmd)
	flags := cmd.Flags()
	var req projection.RedriveRequest
	var since, until timeValue
	var with string
	flags.StringVar(&req.Selection.Reason, "reason", "", "letters of this reason: "+strings.Join(letterReasons, ", "))
	flags.StringVar(&req.Selection.Order, "order", "", "letters of this order")
	flags.Var(&since, "since", "letters that failed first then or later: an RFC 3339 time, or a duration back such as 2h or 7d")
	flags.Var(&until, "until", "letters that failed first before then")
	flags.BoolVar(&req.Selection.All, "all", false, "all open letters")
	flags.StringVar(&with, "with", "", "file with the event that stands in for the record of the one letter")
	flags.Int64Var(&req.Resume, "resume", 0, "continue this redrive job where it stopped")
	flags.Float64Var(&req.Rate, "rate", 0, "at most so many letters per second (default as fast as possible)")
	flags.IntVar(&req.MaxAttempts, "max-attempts", projection.DefaultMaxAttempts, "a letter that was refused so often is exhausted")
	flags.Float64Var(&req.MaxFailureRatio, "max-failure-ratio", projection.DefaultMaxFailureRatio, "stop when a larger part is refused again, after at least 20")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if req.Selection.IDs, err = parseIDs(args); err != nil {
			return err
		}
		if err := checkReason(req.Selection.Reason); err != nil {
			return err
		}
		req.Selection.Since, req.Selection.Until, req.Execute = since.at, until.at, *execute
		req.Selection.Topic = givenTopic(cmd)
		if err := checkRedrive(&req, flags.Changed("since") || flags.Changed("until"), with != ""); err != nil {
			return err
		}
		if req.By, err = byFlags.by(); err != nil {
			return err
		}
		if with != "" {
			if req.Substitute, err = env.readFile(with, maxSubstitute); err != nil {
				return err
			}
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			return env.redrive(ctx, o, req, out)
		})
	}
	return cmd
}

func checkRedrive(req *projection.RedriveRequest, timed, with bool) error {
	s := &req.Selection
	filtered := s.Reason != "" || s.Order != "" || s.Topic != "" || timed
	switch {
	case req.Resume != 0 && (len(s.IDs) > 0 || filtered || s.All || with):
		return usageError("--resume continues a job with the selection that it has")
	case req.Resume != 0 && !req.Execute:
		return usageError("--resume continues what was begun: it needs --execute")
	case req.Resume == 0 && len(s.IDs) == 0 && !filtered && !s.All:
		return usageError("name IDs, or filters, or --all")
	case len(s.IDs) > 0 && (filtered || s.All):
		return usageError("IDs and filters exclude each other")
	case with && len(s.IDs) != 1:
		return usageError("--with is for exactly one ID")
	case req.MaxAttempts < 1:
		return usageError("--max-attempts must be positive")
	case req.MaxFailureRatio <= 0 || req.MaxFailureRatio > 1:
		return usageError("--max-failure-ratio must be above 0 and at most 1")
	case req.Rate < 0:
		return usageError("--rate must not be negative")
	}
	return nil
}

// maxSubstitute bounds what is read as an event: no Kafka record is larger by default.
const maxSubstitute = 16 << 20

func (env *Env) redrive(ctx context.Context, o *operating, req projection.RedriveRequest, out *output) error {
	view := redriveView{Executed: req.Execute, Letters: []projection.RedriveResult{}, Reasons: map[string]int64{}}
	line := progress.New(env.Stderr, isTerminal(env.Stderr))
	done := int64(0)
	req.Each = func(r projection.RedriveResult) {
		done++
		if len(view.Letters) < redriveShown {
			view.Letters = append(view.Letters, r)
		}
		if r.Refused() {
			view.Reasons[r.Outcome+": "+causeOf(r.Detail)]++
		}
		if line.Due() {
			line.Update(fmt.Sprintf("%d letters tried", done))
		}
	}
	redrive, err := env.redriver(ctx, o)
	if err != nil {
		return err
	}
	report, err := redrive(ctx, req)
	line.Clear()
	view.RedriveReport = report
	if err != nil && done == 0 {
		return err
	}
	if printErr := out.print(env.Stdout, view, func(t *tableWriter) { redriveTable(t, view) }); printErr != nil {
		return errors.Join(err, printErr)
	}
	switch {
	case err != nil && report.JobID != 0:
		fmt.Fprintf(env.Stderr, "continue with: orderprojector dlq redrive --resume %d --execute\n", report.JobID)
		return err
	case err != nil:
		return err
	case report.Stopped != "":
		e := &Error{Code: ExitFailed, Err: fmt.Errorf("stopped: %s", report.Stopped), Advice: "see why (dlq group, dlq show); --max-failure-ratio 1 tries all the same"}
		if report.JobID != 0 {
			e.Advice += fmt.Sprintf("; continue with: orderprojector dlq redrive --resume %d --execute", report.JobID)
		}
		return e
	}
	env.sayDryRun(req.Execute)
	return nil
}

// causeOf leaves out of a detail what differs from letter to letter.
func causeOf(detail string) string {
	var b strings.Builder
	quoted, digits := false, false
	for _, r := range detail {
		switch {
		case r == '"':
			if quoted = !quoted; quoted {
				b.WriteString(`"..."`)
			}
		case quoted:
		case r >= '0' && r <= '9':
			if !digits {
				b.WriteByte('N')
			}
		default:
			b.WriteRune(r)
		}
		digits = !quoted && r >= '0' && r <= '9'
	}
	return clipCell(b.String(), 120)
}

func redriveTable(t *tableWriter, v redriveView) {
	if len(v.Letters) > 0 {
		t.row("ID", "ORDER", "VERSION", "OUTCOME", "LETTER", "ATTEMPTS", "ORDER AFTER", "DETAIL")
		for _, r := range v.Letters {
			outcome := r.Outcome
			if outcome == "" {
				outcome = "not tried"
			}
			t.row(strconv.FormatInt(r.LetterID, 10), textCell(r.OrderID), strconv.FormatInt(r.Version, 10), outcome, string(r.Status), strconv.Itoa(r.Attempts),
				standingCell(r.After), textCell(clipCell(r.Detail, 100)))
		}
		t.flush()
		if more := v.Tried - int64(len(v.Letters)); more > 0 {
			t.line(fmt.Sprintf("and %d more", more))
		}
		if len(v.Letters) == 1 {
			cascadeTable(t, "EVENTS PARKED BEHIND IT", v.Letters[0].Drained)
		}
		t.line("")
		t.flush()
	}
	t.field("selected", strconv.FormatInt(v.Selected, 10))
	t.field("tried", strconv.FormatInt(v.Tried, 10))
	t.field("redriven", strconv.FormatInt(v.Redriven, 10))
	t.field("refused again", fmt.Sprintf("%d, %d of them exhausted", v.Refused, v.Exhausted))
	for _, outcome := range slices.Sorted(maps.Keys(v.Outcomes)) {
		t.field("  "+outcome, strconv.FormatInt(v.Outcomes[outcome], 10))
	}
	if len(v.Reasons) > 0 && v.Tried > 1 {
		t.section("REFUSED AGAIN")
		for _, reason := range slices.SortedFunc(maps.Keys(v.Reasons), func(a, b string) int { return int(v.Reasons[b] - v.Reasons[a]) }) {
			t.row(strconv.FormatInt(v.Reasons[reason], 10), reason)
		}
	}
	if v.JobID != 0 {
		t.field("job", strconv.FormatInt(v.JobID, 10))
	}
}
