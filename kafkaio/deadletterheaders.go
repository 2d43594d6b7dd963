package kafkaio

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection/lettercopy"
)

// The headers of a copy. The names beginning with kafka_dlt- and their bytes are those of
// Spring's dead-letter publisher, which other tools read.
const (
	headerOriginalPrefix        = "kafka_dlt-original-"
	headerOriginalTopic         = headerOriginalPrefix + "topic"
	headerOriginalPartition     = headerOriginalPrefix + "partition"
	headerOriginalOffset        = headerOriginalPrefix + "offset"
	headerOriginalTimestamp     = headerOriginalPrefix + "timestamp"
	headerOriginalTimestampType = headerOriginalPrefix + "timestamp-type"
	headerOriginalGroup         = headerOriginalPrefix + "consumer-group"

	headerExceptionPrefix    = "kafka_dlt-exception-"
	headerKeyExceptionPrefix = "kafka_dlt-key-exception-"
	headerExceptionName      = headerExceptionPrefix + "fqcn"
	headerExceptionMessage   = headerExceptionPrefix + "message"

	headerLetterID      = "op-dead-letter-id"
	headerReason        = "op-reason"
	headerDetail        = "op-detail"
	headerAttempts      = "op-attempts"
	headerOrderID       = "op-order-id"
	headerEventID       = "op-event-id"
	headerVersion       = "op-version"
	headerFirstFailedAt = "op-first-failed-at"
	headerLastFailedAt  = "op-last-failed-at"
	// headerValueOmitted is on copies without their value, and says why.
	headerValueOmitted = "op-value-omitted"
)

// maxHeaderText bounds messages in headers: they must not make a copy too large.
const maxHeaderText = 1000

// ours reports whether a header is written anew with each copy. What other
// programs wrote under the prefix op- is theirs, and stays.
func ours(name string) bool {
	switch name {
	case headerLetterID, headerReason, headerDetail, headerAttempts, headerOrderID, headerEventID, headerVersion,
		headerFirstFailedAt, headerLastFailedAt, headerValueOmitted:
		return true
	}
	// An earlier death's stack trace beside this one's message would mislead.
	return strings.HasPrefix(name, headerExceptionPrefix) || strings.HasPrefix(name, headerKeyExceptionPrefix)
}

// copyHeaders returns the record's headers, byte for byte and in their order,
// and those of the copy behind them. Ours are replaced, not appended to, so that a record
// that dies again and again does not grow. A record that comes from a dead-letter topic
// keeps where it came from first.
func copyHeaders(l *lettercopy.Letter, valueOmitted string) []kgo.RecordHeader {
	headers := make([]kgo.RecordHeader, 0, len(l.Record.Headers)+18)
	original := false
	for _, h := range l.Record.Headers {
		if ours(h.Key) {
			continue
		}
		original = original || strings.HasPrefix(h.Key, headerOriginalPrefix)
		headers = append(headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	add := func(name string, value []byte) { headers = append(headers, kgo.RecordHeader{Key: name, Value: value}) }
	text := func(name, value string) { add(name, []byte(clipText(value))) }
	if !original {
		r := &l.Record
		text(headerOriginalTopic, r.Topic)
		add(headerOriginalPartition, binary.BigEndian.AppendUint32(nil, uint32(r.Partition)))
		add(headerOriginalOffset, binary.BigEndian.AppendUint64(nil, uint64(r.Offset)))
		add(headerOriginalTimestamp, binary.BigEndian.AppendUint64(nil, uint64(r.Timestamp.UnixMilli())))
		text(headerOriginalTimestampType, timestampType(r.LogAppendTime))
		text(headerOriginalGroup, l.Group)
	}
	text(headerExceptionName, "orderprojector."+l.Reason)
	text(headerExceptionMessage, l.Detail)
	text(headerLetterID, strconv.FormatInt(l.ID, 10))
	text(headerReason, l.Reason)
	text(headerDetail, l.Detail)
	text(headerAttempts, strconv.Itoa(l.Attempts))
	if l.OrderID != "" {
		text(headerOrderID, l.OrderID)
	}
	if l.EventID != "" {
		text(headerEventID, l.EventID)
	}
	if l.Version != 0 {
		text(headerVersion, strconv.FormatInt(l.Version, 10))
	}
	text(headerFirstFailedAt, l.FirstFailedAt.UTC().Format(time.RFC3339Nano))
	text(headerLastFailedAt, l.LastFailedAt.UTC().Format(time.RFC3339Nano))
	if valueOmitted != "" {
		text(headerValueOmitted, valueOmitted)
	}
	return headers
}

// timestampType is Kafka's own name of it.
func timestampType(logAppendTime bool) string {
	if logAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

func omittedBecause(l *lettercopy.Letter) string {
	return fmt.Sprintf("the value of %d bytes is too large for this topic; orderprojector has it as dead letter %d", len(l.Record.Value), l.ID)
}

func clipText(s string) string {
	if len(s) <= maxHeaderText {
		return s
	}
	end := maxHeaderText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
