package projection

import (
	"encoding/hex"
	"fmt"
	"time"
)

// TopicID is Kafka's identity of a topic. A topic that was deleted and
// created again under the same name has another one, which is how offsets of
// the old log are told from offsets of the new one.
type TopicID [16]byte

// String returns the ID in the usual UUID form.
func (id TopicID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], id[10:16])
	return string(b[:])
}

// TopicPartition names one log: a partition of one incarnation of a topic.
type TopicPartition struct {
	Topic     string
	TopicID   TopicID
	Partition int32
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// Header is one Kafka record header. A nil Value and an empty one differ.
type Header struct {
	Key   string
	Value []byte
}

// Record is one Kafka record as the broker returned it. Key and Value keep
// the difference between null (nil) and empty (non-nil, length 0).
type Record struct {
	TopicPartition
	Offset    int64
	Timestamp time.Time // Kafka's record timestamp, never an event's time
	// LogAppendTime says that the broker set Timestamp when it appended the record;
	// otherwise the producer did.
	LogAppendTime bool
	Key           []byte
	Value         []byte
	Headers       []Header
	// Control marks a transaction marker: invisible to consumers, but its
	// offset is passed, so positions must advance over it.
	Control bool
}
