package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kfake"
)

// KafkaConfig describes an in-process cluster.
type KafkaConfig struct {
	// Topics to create, each with its number of partitions.
	Topics map[string]int32
	// BrokerCount is the number of brokers; 0 means one.
	BrokerCount int
	// Logger gets the cluster's warnings and errors; nil means none.
	Logger *slog.Logger
}

// Kafka is a cluster inside this process that speaks Kafka's protocol on
// 127.0.0.1, on free ports, and keeps everything in memory.
type Kafka struct {
	cluster *kfake.Cluster
}

// StartKafka starts a cluster.
func StartKafka(config KafkaConfig) (*Kafka, error) {
	opts := []kfake.Opt{kfake.NumBrokers(max(1, config.BrokerCount))}
	for _, topic := range slices.Sorted(maps.Keys(config.Topics)) {
		opts = append(opts, kfake.SeedTopics(config.Topics[topic], topic))
	}
	if config.Logger != nil {
		opts = append(opts, kfake.WithLogger(clusterLogger{config.Logger}))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, fmt.Errorf("starting the in-process Kafka cluster: %w", err)
	}
	return &Kafka{cluster: cluster}, nil
}

// Brokers lists the brokers' addresses, for use as bootstrap servers.
func (k *Kafka) Brokers() []string { return k.cluster.ListenAddrs() }

// Close ends the cluster and forgets everything in it.
func (k *Kafka) Close() { k.cluster.Close() }

// clusterLogger passes on what deserves attention.
type clusterLogger struct{ log *slog.Logger }

func (l clusterLogger) Logf(level kfake.LogLevel, format string, args ...any) {
	to := slog.LevelWarn
	switch level {
	case kfake.LogLevelError:
		to = slog.LevelError
	case kfake.LogLevelWarn:
	default:
		to = slog.LevelDebug
	}
	if ctx := context.Background(); l.log.Enabled(ctx, to) {
		l.log.Log(ctx, to, fmt.Sprintf(format, args...))
	}
}
