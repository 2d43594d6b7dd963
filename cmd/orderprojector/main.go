// Command orderprojector projects order events from Kafka into PostgreSQL.
package main

import (
	"os"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.OSEnv()))
}
