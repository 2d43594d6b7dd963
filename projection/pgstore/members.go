package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// memberAlive is how old a heartbeat may be, by the database's clock. Members write one every five seconds.
const memberAlive = 30 * time.Second

// Member is a running process of a group.
type Member struct {
	Group         string
	Name          string // of one process, from its start to its end
	Topic         string
	Host          string
	ProcessID     int
	Program       string // its version
	SchemaVersion int64
}

// Beat writes that a member runs and which partitions it reads, and returns the partitions that running members
// of the group read. Rows of members that vanished a day ago are removed.
func (s *Store) Beat(ctx context.Context, m Member, partitions []int32) (read []int32, err error) {
	batch := &pgx.Batch{} // one transaction
	// A heartbeat that is lost with a crash is no loss, and one must not wait for a standby.
	batch.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	batch.Queue(`INSERT INTO group_members (consumer_group, member, kafka_topic, host, process_id, program, schema_version, partitions, started_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now())
		ON CONFLICT (consumer_group, member) DO UPDATE SET partitions = excluded.partitions, seen_at = now()`,
		m.Group, m.Name, m.Topic, m.Host, m.ProcessID, m.Program, m.SchemaVersion, partitions)
	batch.Queue(`DELETE FROM group_members WHERE seen_at < now() - interval '1 day'`)
	batch.Queue(`SELECT DISTINCT unnest(partitions) FROM group_members WHERE consumer_group = $1 AND kafka_topic = $2 AND seen_at > now() - $3::interval`,
		m.Group, m.Topic, memberAlive).Query(func(rows pgx.Rows) error {
		read, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		return err
	})
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("writing the member's heartbeat: %w", err)
	}
	return read, nil
}

// Leave removes the row of a member that ends.
func (s *Store) Leave(ctx context.Context, m Member) error {
	batch := &pgx.Batch{}
	batch.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	batch.Queue(`DELETE FROM group_members WHERE consumer_group = $1 AND member = $2`, m.Group, m.Name)
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("removing the member's heartbeat: %w", err)
	}
	return nil
}

// MemberState is a running member as its heartbeat tells.
type MemberState struct {
	Member        string    `json:"member"`
	KafkaTopic    string    `json:"kafka_topic"`
	Host          string    `json:"host"`
	ProcessID     int32     `json:"process_id"`
	Program       string    `json:"program"`
	SchemaVersion int64     `json:"schema_version"`
	Partitions    []int32   `json:"partitions"`
	StartedAt     time.Time `json:"started_at"`
	SeenAt        time.Time `json:"seen_at"`
}

func readMembers(ctx context.Context, tx pgx.Tx, group string) ([]MemberState, error) {
	return query[MemberState](ctx, tx, "group_members", `
		SELECT member, kafka_topic, host, process_id, program, schema_version, partitions, started_at, seen_at
		FROM group_members WHERE consumer_group = $1 AND seen_at > clock_timestamp() - $2::interval ORDER BY host, process_id, member`, group, memberAlive)
}
