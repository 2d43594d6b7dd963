package embedded_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded"
)

func TestInProcessKafka(t *testing.T) {
	kafka, err := embedded.StartKafka(embedded.KafkaConfig{Topics: map[string]int32{"orders.events": 6}, BrokerCount: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	if n := len(kafka.Brokers()); n != 2 {
		t.Fatalf("%d brokers", n)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers()...), kgo.DefaultProduceTopic("orders.events"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	topics, err := kadm.NewClient(client).ListTopics(t.Context(), "orders.events")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(topics["orders.events"].Partitions); n != 6 {
		t.Fatalf("%d partitions", n)
	}
}
