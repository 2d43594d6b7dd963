package app

import (
	"os"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
)

// KafkaClient translates the connection settings.
func KafkaClient(k config.Kafka) kafkaio.ClientConfig {
	return kafkaio.ClientConfig{
		SeedBrokers:      k.BootstrapServers,
		ClientID:         clientID(k.ClientID),
		SecurityProtocol: kafkaio.SecurityProtocol(k.SecurityProtocol),
		SASLMechanism:    kafkaio.SASLMechanism(k.SASL.Mechanism),
		Username:         k.SASL.Username,
		Password:         kafkaio.Secret(k.SASL.Password.Reveal()),
		OAuth: kafkaio.OAuthConfig{
			TokenFile:    k.SASL.OAuth.TokenFile,
			TokenURL:     k.SASL.OAuth.TokenURL,
			ClientID:     k.SASL.OAuth.ClientID,
			ClientSecret: kafkaio.Secret(k.SASL.OAuth.ClientSecret.Reveal()),
			Scope:        k.SASL.OAuth.Scope,
		},
		CAFile:   k.TLS.CALocation,
		CertFile: k.TLS.CertificateLocation,
		KeyFile:  k.TLS.KeyLocation,
	}
}

// clientID tells members apart in the broker's logs and tools.
func clientID(configured string) string {
	if configured != "" {
		return configured
	}
	host, err := os.Hostname()
	if err != nil {
		return "orderprojector"
	}
	return "orderprojector-" + host
}

// consumerConfig translates the group settings.
func consumerConfig(cfg config.Config, gate projection.Gate) kafkaio.ConsumerConfig {
	return kafkaio.ConsumerConfig{
		Group:           cfg.Kafka.Group,
		Topic:           cfg.Kafka.Topic,
		InstanceID:      cfg.Kafka.InstanceID,
		GroupProtocol:   kafkaio.GroupProtocol(cfg.Kafka.GroupProtocol),
		SessionTimeout:  cfg.Kafka.SessionTimeout,
		ShutdownGrace:   cfg.ShutdownGrace,
		StallLimit:      cfg.StallLimit,
		MaxBatchRecords: cfg.Projection.BatchMaxRecords,
		MaxBatchBytes:   int64(cfg.Projection.BatchMaxBytes),
		OnDataLoss:      kafkaio.DataLossPolicy(cfg.Kafka.OnDataLoss),
		Gate:            gate,
	}
}
