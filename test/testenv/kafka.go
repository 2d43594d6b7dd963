//go:build unix

package testenv

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/child"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/freeport"
)

// bootstrapServers names the brokers to use instead of starting one.
const bootstrapServers = "KAFKA_BOOTSTRAP_SERVERS"

const kafkaStartTimeout = 90 * time.Second

// KafkaConfig says how to run a broker. The zero value is good.
type KafkaConfig struct {
	// Settings are broker parameters (server.properties) that override ours.
	Settings map[string]string
	// Secure adds listeners for TLS and SASL; see (*Kafka).Secure.
	Secure bool
	// Proxied adds a listener that is reached through a Proxy; see
	// (*Kafka).Proxy.
	Proxied bool
	// Heap is the broker's Java heap; empty means 512m.
	Heap string
	// FullSpeed lets Java optimise the broker as in production, for
	// benchmarks. It costs seconds of processor time, which tests would
	// rather have at the start.
	FullSpeed bool
}

// Kafka is an Apache Kafka broker of our own, in KRaft mode, a cluster of one.
// It keeps its ports and its data over restarts and ends with this process,
// however that ends (on Linux), and Close removes its data. The methods may be called from several
// goroutines.
type Kafka struct {
	config   KafkaConfig
	software software
	dir      string
	ports    map[string]int // by listener
	secure   *SecureListeners
	proxy    *Proxy

	mu     sync.Mutex // one start or stop at a time
	broker *child.Child
}

// The listeners' names.
const (
	listenerController = "CONTROLLER"
	listenerPlain      = "PLAINTEXT"
	listenerProxied    = "PROXIED"
)

// RunKafka starts a broker and returns when it answers.
func RunKafka(ctx context.Context, config KafkaConfig) (*Kafka, error) {
	software, err := kafkaSoftware(ctx)
	if err != nil {
		return nil, fmt.Errorf("no Kafka (set %s to use one that runs): %w", bootstrapServers, err)
	}
	dir, err := os.MkdirTemp("", "orderprojector-kafka-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for Kafka: %w", err)
	}
	k := &Kafka{config: config, software: software, dir: dir}
	if err := k.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting Kafka %s: %w", kafkaVersion, err), k.Close())
	}
	return k, nil
}

func (k *Kafka) begin(ctx context.Context) error {
	if k.config.Proxied {
		proxy, err := NewProxy("")
		if err != nil {
			return err
		}
		k.proxy = proxy
	}
	if k.config.Secure {
		secure, err := newSecureListeners(k.dir)
		if err != nil {
			return err
		}
		k.secure = secure
	}
	const attempts = 3
	for attempt := 1; ; attempt++ {
		err := k.firstStart(ctx)
		if err == nil {
			return nil
		}
		// Somebody else can take a free port before the broker does.
		if attempt == attempts || !strings.Contains(tailOfFile(k.LogFile(), 100), "Address already in use") {
			return err
		}
	}
}

func (k *Kafka) firstStart(ctx context.Context) error {
	listeners := []string{listenerController, listenerPlain}
	if k.proxy != nil {
		listeners = append(listeners, listenerProxied)
	}
	if k.secure != nil {
		listeners = append(listeners, secureProtocols...)
	}
	ports, err := freeport.Take(ctx, len(listeners))
	if err != nil {
		return err
	}
	k.ports = map[string]int{}
	for i, l := range listeners {
		k.ports[l] = ports[i]
	}
	if k.secure != nil {
		k.secure.ports = k.ports
	}
	if k.proxy != nil {
		k.proxy.Retarget(k.address(listenerProxied))
	}
	if err := k.writeProperties(); err != nil {
		return err
	}
	// The controller's port is part of the data, so another attempt starts over.
	if err := os.RemoveAll(k.data()); err != nil {
		return err
	}
	if err := k.format(ctx); err != nil {
		return err
	}
	return k.Start(ctx)
}

// Brokers lists the address of the plain listener, for use as bootstrap servers.
func (k *Kafka) Brokers() []string { return []string{k.address(listenerPlain)} }

// Proxy is what stands between the broker and clients that were given
// Proxy().Addr() as their bootstrap server (KafkaConfig.Proxied); nil if none.
func (k *Kafka) Proxy() *Proxy { return k.proxy }

// Secure describes the listeners for TLS and SASL (KafkaConfig.Secure); nil if none.
func (k *Kafka) Secure() *SecureListeners { return k.secure }

// LogFile is the file with the broker's output.
func (k *Kafka) LogFile() string { return filepath.Join(k.dir, "kafka.log") }

// Segment is the file with a partition's log, as long as that is short.
func (k *Kafka) Segment(topic string, partition int32) string {
	return filepath.Join(k.data(), fmt.Sprintf("%s-%d", topic, partition), "00000000000000000000.log")
}

// Start starts a broker again that was stopped or killed.
func (k *Kafka) Start(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broker != nil && k.broker.Running() {
		return errors.New("the broker is running already")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, kafkaStartTimeout,
		fmt.Errorf("Kafka did not answer within %v", kafkaStartTimeout))
	defer cancel()
	out, err := os.OpenFile(k.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	heap := k.config.Heap
	if heap == "" {
		heap = "512m"
	}
	args := []string{"-Xmx" + heap, "-XX:+ExitOnOutOfMemoryError"}
	if !k.config.FullSpeed {
		args = append(args, quickStart...)
	}
	cmd := k.java(context.WithoutCancel(ctx), append(args, "kafka.Kafka", k.properties())...)
	cmd.Stdout, cmd.Stderr = out, out
	broker, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("starting the broker process: %w", err)
	}
	k.broker = broker
	if err := k.awaitAnswer(ctx); err != nil {
		broker.Kill()
		return fmt.Errorf("%w; its last lines:\n%s", err, tailOfFile(k.LogFile(), 25))
	}
	return nil
}

// Stop ends the broker in order. When ctx ends first, it is killed.
func (k *Kafka) Stop(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broker != nil {
		k.broker.Stop(syscall.SIGTERM, ctx.Done())
	}
}

// Kill ends the broker as a crash does (SIGKILL).
func (k *Kafka) Kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broker != nil {
		k.broker.Kill()
	}
}

// Restart is Stop and Start.
func (k *Kafka) Restart(ctx context.Context) error {
	k.Stop(ctx)
	return k.Start(ctx)
}

// Pause freezes the broker: its connections stay and nothing answers.
func (k *Kafka) Pause() error { return k.running().Pause() }

// Resume lets a paused broker go on.
func (k *Kafka) Resume() error { return k.running().Resume() }

// Done is closed when the broker process, the one running at the time of the
// call, has ended.
func (k *Kafka) Done() <-chan struct{} { return k.running().Done() }

// Close kills the broker, closes its proxy and removes its data.
func (k *Kafka) Close() error {
	k.Kill()
	if k.proxy != nil {
		k.proxy.Close()
	}
	return os.RemoveAll(k.dir)
}

func (k *Kafka) running() *child.Child {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broker
}

func (k *Kafka) address(listener string) string {
	return fmt.Sprintf("127.0.0.1:%d", k.ports[listener])
}

func (k *Kafka) data() string { return filepath.Join(k.dir, "data") }

func (k *Kafka) properties() string { return filepath.Join(k.dir, "server.properties") }

func (k *Kafka) writeProperties() error {
	var listeners, advertised []string
	protocols := []string{"CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "PROXIED:PLAINTEXT"}
	for _, l := range slices.Sorted(maps.Keys(k.ports)) {
		listeners = append(listeners, l+"://"+k.address(l))
		switch l {
		case listenerController:
		case listenerProxied:
			advertised = append(advertised, l+"://"+k.proxy.Addr())
		default:
			advertised = append(advertised, l+"://"+k.address(l))
		}
	}
	settings := map[string]string{
		"process.roles":                       "broker,controller",
		"node.id":                             "1",
		"controller.listener.names":           listenerController,
		"controller.quorum.bootstrap.servers": k.address(listenerController),
		"listeners":                           strings.Join(listeners, ","),
		"advertised.listeners":                strings.Join(advertised, ","),
		"inter.broker.listener.name":          listenerPlain,
		"log.dirs":                            k.data(),

		// one broker, quick on a small machine
		"offsets.topic.num.partitions":                     "4",
		"offsets.topic.replication.factor":                 "1",
		"transaction.state.log.num.partitions":             "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.num.partitions":     "4",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		// a restarted broker waits until the session of the killed one is over
		"broker.heartbeat.interval.ms": "500",
		"broker.session.timeout.ms":    "4000",

		// tests create their topics, and do not wait for retention
		"auto.create.topics.enable":       "false",
		"delete.topic.enable":             "true",
		"log.initial.task.delay.ms":       "500",
		"log.retention.check.interval.ms": "500",
		"log.segment.delete.delay.ms":     "500",
	}
	if k.secure != nil {
		protocols = append(protocols, k.secure.protocolMap()...)
		maps.Copy(settings, k.secure.settings())
	}
	settings["listener.security.protocol.map"] = strings.Join(protocols, ",")
	maps.Copy(settings, k.config.Settings)

	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s=%s\n", key, settings[key])
	}
	return os.WriteFile(k.properties(), []byte(b.String()), 0o600)
}

// format prepares the data directory.
func (k *Kafka) format(ctx context.Context) error {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] &= 0x7f           // an ID that begins with a hyphen would be taken for an option
	args := []string{"kafka.tools.StorageTool", "format", "--standalone",
		"--cluster-id", base64.RawURLEncoding.EncodeToString(id[:]), "--config", k.properties()}
	if k.secure != nil {
		args = append(args, k.secure.formatArgs()...)
	}
	var out bytes.Buffer
	cmd := k.java(ctx, slices.Concat(quickStart, args)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("preparing Kafka's data directory: %w; its last lines:\n%s", err, tail(out.String(), 15))
	}
	return nil
}

// quickStart halves the processor time that a Java program takes to start.
var quickStart = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}

func (k *Kafka) java(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{
		"-cp", filepath.Join(k.software.jars, "*"), "-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
	}, args...)
	cmd := exec.CommandContext(ctx, k.software.java, args...)
	cmd.Dir = k.dir
	return cmd
}

func (k *Kafka) awaitAnswer(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.RetryTimeout(time.Second), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		ask, cancel := context.WithTimeout(ctx, 5*time.Second)
		metadata, err := admin.BrokerMetadata(ask)
		cancel()
		if err == nil && len(metadata.Brokers) == 1 && metadata.Controller >= 0 {
			return nil
		}
		select {
		case <-k.broker.Done():
			return fmt.Errorf("the broker ended while starting: %w", k.broker.Err())
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-poll.C:
		}
	}
}

// SharedKafka returns the bootstrap servers of the cluster that the tests of
// this binary share. Their topics are their own: see Topic.
func SharedKafka(t testing.TB) []string {
	t.Helper()
	needs(t, "Apache Kafka")
	return shared.kafka.get(t, func(ctx context.Context) ([]string, func() error, error) {
		if list := os.Getenv(bootstrapServers); list != "" {
			return strings.Split(list, ","), nil, nil
		}
		k, err := RunKafka(ctx, KafkaConfig{})
		if err != nil {
			return nil, nil, err
		}
		return k.Brokers(), k.Close, nil
	})
}

// StartKafka starts a broker for one test that stops or breaks it.
func StartKafka(t testing.TB, config KafkaConfig) *Kafka {
	t.Helper()
	needs(t, "Apache Kafka")
	k, err := RunKafka(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.Kill()
		showOnFailure(t, "Kafka", k.LogFile())
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}
