package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// showBytes is how much of a record's value is shown unless all of it is asked for.
const showBytes = 4096

// letterRecordView is a letter with its record, in a form that loses no byte.
type letterRecordView struct {
	pgstore.LetterView
	Timestamp     *time.Time   `json:"kafka_timestamp"` // null outside of the years 0 to 9999, which RFC 3339 has
	Millis        int64        `json:"kafka_timestamp_ms"`
	TimestampType string       `json:"kafka_timestamp_type"` // CreateTime or LogAppendTime
	TopicID       string       `json:"topic_id"`
	Key           *bytesView   `json:"key"`
	Value         *bytesView   `json:"value"`
	Headers       []headerView `json:"headers"`
	Next          []string     `json:"next,omitempty"`
}

// bytesView is some bytes: in base64, and as text where they are text.
type bytesView struct {
	Base64 string  `json:"base64"`
	Text   *string `json:"text,omitempty"`
}

type headerView struct {
	Key   string     `json:"key"`
	Value *bytesView `json:"value"`
}

func viewBytes(b []byte) *bytesView {
	if b == nil {
		return nil
	}
	v := &bytesView{Base64: base64.StdEncoding.EncodeToString(b)}
	if utf8.Valid(b) {
		text := string(b)
		v.Text = &text
	}
	return v
}

func viewLetter(l pgstore.LetterRecord) letterRecordView {
	v := letterRecordView{
		LetterView: l.LetterView, Millis: l.Record.Timestamp.UnixMilli(), TimestampType: "CreateTime", TopicID: l.Record.TopicID.String(),
		Key: viewBytes(l.Record.Key), Value: viewBytes(l.Record.Value), Headers: []headerView{},
	}
	if at := l.Record.Timestamp.UTC(); isWritable(at) {
		v.Timestamp = &at
	}
	if l.Record.LogAppendTime {
		v.TimestampType = "LogAppendTime"
	}
	for _, h := range l.Record.Headers {
		v.Headers = append(v.Headers, headerView{h.Key, viewBytes(h.Value)})
	}
	return v
}

// isWritable reports whether RFC 3339 has the year of a time.
func isWritable(t time.Time) bool { return t.Year() >= 0 && t.Year() <= 9999 }

func newDLQShowCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print a dead letter: its record, why it died, and what to do next",
		Long: `Print a dead letter: why it died, how often it was tried, its record as text or, where it is none, as hex, its
headers, and the commands that lead on. Control characters are escaped. --value prints the value alone, byte for byte,
to be corrected and given to "dlq redrive --with".`,
		Args: cobra.ExactArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	addSettingFlags(cmd, "group")
	out := addOutputFlag(cmd)
	asHex := cmd.Flags().Bool("hex", false, "print the value as hex")
	full := cmd.Flags().Bool("full", false, fmt.Sprintf("print all of the value (default its first %d bytes)", showBytes))
	value := cmd.Flags().Bool("value", false, "print the value alone, byte for byte")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		return env.withGroupReader(cmd, func(ctx context.Context, group string, reader *pgstore.Reader) error {
			letter, err := reader.LetterRecord(ctx, group, ids[0])
			if errors.Is(err, pgstore.ErrNotFound) {
				return notFoundError("dead letter %d: group %s has none of that ID", ids[0], group)
			}
			if err != nil {
				return err
			}
			if *value {
				_, err := env.Stdout.Write(letter.Record.Value)
				return err
			}
			view := viewLetter(letter)
			view.Next = nextCommands(letter.LetterView)
			return out.print(env.Stdout, view, func(t *tableWriter) { letterTable(t, letter, view.Next, *asHex, *full) })
		})
	}
	return cmd
}

// nextCommands are the ways on from a letter.
func nextCommands(l pgstore.LetterView) []string {
	id := strconv.FormatInt(l.ID, 10)
	var next []string
	switch l.Status {
	case "open", "exhausted":
		next = append(next,
			"orderprojector dlq redrive "+id+"                                   # what deciding it again would do; --execute does it",
			"orderprojector dlq show "+id+" --value > event.json                 # to correct it, then:",
			"orderprojector dlq redrive "+id+" --with event.json")
		if l.Blocks {
			next = append(next, "orderprojector dlq discard "+id+" --skip --comment TEXT              # what passing its version would do; --execute does it")
		} else {
			next = append(next, "orderprojector dlq discard "+id+" --comment TEXT")
		}
	case "discarded":
		next = append(next, "orderprojector dlq restore "+id+" --comment TEXT")
	}
	if l.OrderID != nil && !strings.ContainsFunc(*l.OrderID, func(r rune) bool { return !unicode.IsPrint(r) }) {
		next = append(next, "orderprojector orders timeline "+shellQuote(*l.OrderID))
	}
	return next
}

// shellQuote makes a word that a shell takes as it is.
func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:@%+=,", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func letterTable(t *tableWriter, l pgstore.LetterRecord, next []string, asHex, full bool) {
	t.field("dead letter", strconv.FormatInt(l.ID, 10))
	status := l.Status
	switch {
	case l.Blocking:
		status += ", blocks its order"
	case l.Blocks && (l.Status == "open" || l.Status == "exhausted"):
		status += ", will block its order when its version is next"
	}
	t.field("status", status)
	t.field("reason", l.Reason)
	t.field("detail", l.Detail)
	t.field("attempts", strconv.Itoa(int(l.Attempts)))
	t.field("first failed", timeCell(&l.FirstFailedAt))
	t.field("last failed", timeCell(&l.LastFailedAt))
	due := timeCell(&l.DueAt)
	if l.Overdue {
		due += ", overdue"
	}
	t.field("due", due)
	t.field("owner", optionalCell(l.Owner))
	if l.ClosedAt != nil {
		closed := timeCell(l.ClosedAt)
		if l.ClosedBy != nil {
			closed += " by " + *l.ClosedBy
		}
		if l.ClosedComment != nil {
			closed += ": " + *l.ClosedComment
		}
		t.field("closed", closed)
	}
	t.field("order", optionalCell(l.OrderID))
	t.field("version", versionCell(l.Version))
	t.field("event", optionalCell(l.EventID))
	t.field("type", optionalCell(l.Type))
	clock := "CreateTime"
	if l.Record.LogAppendTime {
		clock = "LogAppendTime"
	}
	t.field("record", fmt.Sprintf("%s partition %d offset %d", l.KafkaTopic, l.KafkaPartition, l.KafkaOffset))
	at := l.Record.Timestamp.UTC()
	shown := timeCell(&at)
	if !isWritable(at) {
		shown = fmt.Sprintf("%d ms", at.UnixMilli())
	}
	t.field("timestamp", fmt.Sprintf("%s (%s)", shown, clock))
	t.field("key", bytesCell(l.Record.Key))
	if len(l.Record.Headers) > 0 {
		t.section("HEADERS")
		for _, h := range l.Record.Headers {
			t.row("  "+h.Key, bytesCell(h.Value))
		}
	}
	valueSection(t, l.Record.Value, asHex, full)
	if len(next) > 0 {
		t.section("NEXT")
		for _, command := range next {
			t.line("  " + command)
		}
	}
}

// bytesCell shows bytes on one line: as text, or as hex where they are none.
func bytesCell(b []byte) string {
	switch {
	case b == nil:
		return "(null)"
	case len(b) == 0:
		return "(empty)"
	case len(b) > 1000:
		return bytesCell(b[:1000]) + fmt.Sprintf(" ... (%d bytes)", len(b))
	case utf8.Valid(b):
		return string(b)
	}
	return "0x" + hex.EncodeToString(b)
}

// valueSection shows a value line by line: text with control characters escaped, or a hex dump.
func valueSection(t *tableWriter, value []byte, asHex, full bool) {
	switch {
	case value == nil:
		t.section("VALUE (null)")
		return
	case len(value) == 0:
		t.section("VALUE (empty)")
		return
	}
	shown := value
	if !full && len(shown) > showBytes {
		shown = shown[:showBytes]
		for len(shown) > showBytes-4 && !utf8.Valid(shown) { // not in the middle of a character
			shown = shown[:len(shown)-1]
		}
		if !utf8.Valid(shown) {
			shown = value[:showBytes]
		}
	}
	kind := "text"
	if asHex || !utf8.Valid(shown) {
		kind = "hex"
	}
	t.section(fmt.Sprintf("VALUE (%d bytes, %s)", len(value), kind))
	if kind == "hex" {
		for line := range bytes.Lines([]byte(hex.Dump(shown))) {
			t.line(strings.TrimRight(string(line), "\n"))
		}
	} else {
		for _, line := range strings.Split(string(shown), "\n") {
			t.line(printableLine(line))
		}
	}
	if len(shown) < len(value) {
		t.line(fmt.Sprintf("... %d more bytes: --full shows them", len(value)-len(shown)))
	}
}

// printableLine escapes what would command the terminal, character by character; the rest of the line stays readable.
func printableLine(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
