package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newDLQExportCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write dead letters with their records as JSON lines",
		Long: `Write dead letters with their records to standard output, one JSON object per line, by ID. Keys, values and headers are
there byte for byte, in base64. --status all takes closed ones too.`,
		Example: `  orderprojector dlq export --reason illegal --since 7d > letters.jsonl`,
		Args:    cobra.NoArgs,
	}
	addOperatorFlags(cmd)
	filter := addLetterFilterFlags(cmd)
	limit := cmd.Flags().Int("limit", 0, "at most so many (default all)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := filter.get(cmd)
		if err != nil {
			return err
		}
		if f.Limit = *limit; f.Limit < 0 {
			return usageError("--limit must not be negative")
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			buffer := bufio.NewWriterSize(env.Stdout, 1<<16)
			encoder := json.NewEncoder(buffer)
			encoder.SetEscapeHTML(false)
			line := progress.New(env.Stderr, isTerminal(env.Stderr))
			written := int64(0)
			_, err := o.reader.ExportLetters(ctx, o.group(), f, func(l pgstore.LetterRecord) error {
				written++
				if line.Due() {
					line.Update(fmt.Sprintf("%d letters written", written))
				}
				view := viewLetter(l)
				for _, b := range append([]*bytesView{view.Key, view.Value}, headerValues(view.Headers)...) {
					if b != nil {
						b.Text = nil
					}
				}
				return encoder.Encode(view)
			})
			line.Clear()
			if err != nil {
				return err
			}
			if err := buffer.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(env.Stderr, "%d dead letters exported\n", written)
			return nil
		})
	}
	return cmd
}

func headerValues(headers []headerView) []*bytesView {
	values := make([]*bytesView, len(headers))
	for i, h := range headers {
		values[i] = h.Value
	}
	return values
}
