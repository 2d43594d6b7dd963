package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection"
)

// showBytes is how much of a record's value is shown unless all of it is asked for.
const showBytes = 4096

// recordView is a Kafka record in a form that loses no byte.
type recordView struct {
	Timestamp     *time.Time   `json:"kafka_timestamp"` // null outside of the years 0 to 9999, which RFC 3339 has
	Millis        int64        `json:"kafka_timestamp_ms"`
	TimestampType string       `json:"kafka_timestamp_type"` // CreateTime or LogAppendTime
	TopicID       string       `json:"topic_id"`
	Key           *bytesView   `json:"key"`
	Value         *bytesView   `json:"value"`
	Headers       []headerView `json:"headers"`
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

func viewRecord(r *projection.Record) recordView {
	v := recordView{
		Millis: r.Timestamp.UnixMilli(), TimestampType: clock(r), TopicID: r.TopicID.String(),
		Key: viewBytes(r.Key), Value: viewBytes(r.Value), Headers: []headerView{},
	}
	if at := r.Timestamp.UTC(); isWritable(at) {
		v.Timestamp = &at
	}
	for _, h := range r.Headers {
		v.Headers = append(v.Headers, headerView{h.Key, viewBytes(h.Value)})
	}
	return v
}

// isWritable reports whether RFC 3339 has the year of a time.
func isWritable(t time.Time) bool { return t.Year() >= 0 && t.Year() <= 9999 }

// clock says whose time a record's timestamp is.
func clock(r *projection.Record) string {
	if r.LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// recordFlags say how a record is printed.
type recordFlags struct{ hex, full, value bool }

func addRecordFlags(cmd *cobra.Command) *recordFlags {
	f := &recordFlags{}
	cmd.Flags().BoolVar(&f.hex, "hex", false, "print the value as hex")
	cmd.Flags().BoolVar(&f.full, "full", false, fmt.Sprintf("print all of the value (default its first %d bytes)", showBytes))
	cmd.Flags().BoolVar(&f.value, "value", false, "print the value alone, byte for byte")
	return f
}

// record shows a record, and the commands that lead on.
func (f *recordFlags) record(t *tableWriter, r *projection.Record, next []string) {
	t.field("record", fmt.Sprintf("%s partition %d offset %d", r.Topic, r.Partition, r.Offset))
	at := r.Timestamp.UTC()
	shown := timeCell(&at)
	if !isWritable(at) {
		shown = fmt.Sprintf("%d ms", at.UnixMilli())
	}
	t.field("timestamp", fmt.Sprintf("%s (%s)", shown, clock(r)))
	t.field("key", bytesCell(r.Key))
	if len(r.Headers) > 0 {
		t.section("HEADERS")
		for _, h := range r.Headers {
			t.row("  "+h.Key, bytesCell(h.Value))
		}
	}
	valueSection(t, r.Value, f.hex, f.full)
	if len(next) > 0 {
		t.section("NEXT")
		for _, command := range next {
			t.line("  " + command)
		}
	}
}

// timelineCommand is the command that shows the order, where its ID can be typed.
func timelineCommand(orderID *string) []string {
	if orderID == nil || strings.ContainsFunc(*orderID, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil
	}
	return []string{"orderprojector orders timeline " + shellQuote(*orderID)}
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
