package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// reading is what commands need that look at topic and database alike. None of it
// joins a group or commits an offset.
type reading struct {
	cfg     config.Config
	pool    *pgxpool.Pool
	reader  *pgstore.Reader
	log     *kafkaio.TopicReader
	records *kafkaio.RecordReader
}

// withReading opens topic and database, whose schema it checks first, for as long as work takes.
func (env *Env) withReading(cmd *cobra.Command, work func(context.Context, *reading) error) error {
	cfg, err := env.loadConfig(cmd, config.SectionKafka, config.SectionGroup, config.SectionDatabase)
	if err != nil {
		return err
	}
	ctx, logger := cmd.Context(), env.logger(cfg.Log)
	r := &reading{cfg: cfg}
	if r.pool, err = app.OpenPool(ctx, cfg.Database, app.ReadPool, 2); err != nil {
		return err
	}
	defer r.pool.Close()
	r.reader = pgstore.NewReader(r.pool)
	want, err := app.SchemaVersion()
	if err != nil {
		return err
	}
	if err := env.checkSchema(ctx, r, want); err != nil {
		return err
	}
	client := app.KafkaClient(cfg.Kafka)
	if r.log, err = kafkaio.NewTopicReader(client, logger); err != nil {
		return err
	}
	defer r.log.Close()
	if r.records, err = kafkaio.NewRecordReader(client, logger); err != nil {
		return err
	}
	defer r.records.Close()
	r.records.TopicIDs = r.reader.TopicIDs
	return work(ctx, r)
}

func (env *Env) checkSchema(ctx context.Context, r *reading, want int64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*(r.cfg.Database.ConnectTimeout+r.cfg.Database.StatementTimeout))
	defer cancel()
	return r.reader.CheckSchema(ctx, want, r.cfg.Database.AllowNewerSchema)
}

// progressText tells how far reading has come, how fast it is and how long it may still take.
func progressText(verb string, done, total int64, elapsed time.Duration) string {
	rate := float64(done) / max(elapsed.Seconds(), 1e-9)
	text := fmt.Sprintf("%s %d of %d records, %.0f records/s", verb, done, total, rate)
	if done > 0 && total > done {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		text += ", " + left.Round(time.Second).String() + " left"
	}
	return text
}
