package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-admission/gateway/internal/adminapi"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "admission",
		Usage: "status|explain|deliveries",
		Short: "Looks into the admission gateway",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(statusCommand(), explainCommand(), deliveriesCommand())
		},
	})
}

// adminFlags are the flags that find the admin endpoint, as Caddy's own
// commands have them.
type adminFlags struct {
	address, config, adapter string
	json                     bool
}

func (f *adminFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.address, "address", "", "The address of the admin endpoint (default: from --config, else Caddy's own default)")
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "Configuration file")
	cmd.Flags().StringVarP(&f.adapter, "adapter", "a", "", "Name of the configuration's adapter")
	cmd.Flags().BoolVar(&f.json, "json", false, "Print JSON")
}

// call asks the running gateway and decodes its answer, nil for none.
func (f *adminFlags) call(method, path string, question, answer any) error {
	body, err := f.open(method, path, question)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if answer == nil {
		return nil
	}
	return json.NewDecoder(body).Decode(answer)
}

// unreachableError says that no gateway answers at the admin endpoint.
type unreachableError struct {
	address string
	err     error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("admin endpoint %s: %v (is Caddy running there?)", e.address, e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// open asks the running gateway; the caller closes the answer.
func (f *adminFlags) open(method, path string, question any) (io.ReadCloser, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(f.address, nil, f.config, f.adapter)
	if err != nil {
		return nil, err
	}
	var body io.Reader
	header := http.Header{}
	if question != nil {
		raw, err := json.Marshal(question)
		if err != nil {
			return nil, err
		}
		body, header = bytes.NewReader(raw), http.Header{"Content-Type": {"application/json"}}
	}
	resp, err := caddycmd.AdminAPIRequest(address, method, path, header, body)
	switch {
	case err == nil:
		return resp.Body, nil
	case strings.HasPrefix(err.Error(), "performing request:"): // Caddy's client, when nobody answered
		return nil, &unreachableError{address, err}
	}
	return nil, fmt.Errorf("admin endpoint %s: %w", address, err)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func statusCommand() *cobra.Command {
	var f adminFlags
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Shows the pools of the running gateway: permits held, waiting, refused",
		Args:  cobra.NoArgs,
	}
	f.add(cmd)
	cmd.Flags().DurationVarP(&every, "watch", "w", 0, "Show it again after this time, until interrupted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
		defer stop()
		return repeat(ctx, every, func() error {
			var state adminapi.State
			if err := f.call(http.MethodGet, adminapi.StatePath, nil, &state); err != nil {
				return err
			}
			if f.json {
				return printJSON(cmd.OutOrStdout(), state)
			}
			return printStatus(cmd.OutOrStdout(), state)
		})
	}
	return cmd
}

// repeat runs do once, or again after every interval until ctx ends.
func repeat(ctx context.Context, every time.Duration, do func() error) error {
	for {
		if err := do(); err != nil || every <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func explainCommand() *cobra.Command {
	var f adminFlags
	var q adminapi.ExplainRequest
	var headers []string
	cmd := &cobra.Command{
		Use:   "explain METHOD URL",
		Short: "Says which class a request falls in, what limits it, and why",
		Long: `Says which class a request falls in, what limits it, and why.

Without --config it asks the running gateway. With --config it reads that
configuration, which need not run. Nothing is sent to an upstream, counted or
remembered.`,
		Example: `  caddy admission explain GET "https://git.example.com/team/app.git/info/refs?service=git-receive-pack"
  caddy admission explain POST https://git.example.com/team/app.git/git-receive-pack -H "Authorization: Basic ZGV2OnB3" --proven`,
		Args: cobra.ExactArgs(2),
	}
	f.add(cmd)
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "A header of the request, \"Name: value\"; may be repeated")
	cmd.Flags().StringVar(&q.From, "from", "", "The address the request comes from")
	cmd.Flags().BoolVar(&q.Proven, "proven", false, "Take the credential as proven")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Method, q.URL = strings.ToUpper(args[0]), args[1]
		var err error
		if q.Header, err = parseHeaders(headers); err != nil {
			return err
		}
		x, err := f.explain(q)
		if err != nil {
			return err
		}
		if f.json {
			return printJSON(cmd.OutOrStdout(), x)
		}
		return printExplanation(cmd.OutOrStdout(), x)
	}
	return cmd
}

// provision reads a configuration file and checks it as "caddy validate" does;
// nothing is started.
func provision(config, adapter string) (caddy.Context, error) {
	raw, _, _, err := caddycmd.LoadConfig(config, adapter)
	if err != nil {
		return caddy.Context{}, err
	}
	var cfg caddy.Config
	if err := caddy.StrictUnmarshalJSON(raw, &cfg); err != nil {
		return caddy.Context{}, err
	}
	return caddy.ProvisionContext(&cfg)
}

func (f *adminFlags) explain(q adminapi.ExplainRequest) (*adminapi.Explanation, error) {
	if f.config == "" || f.address != "" {
		x := new(adminapi.Explanation)
		return x, f.call(http.MethodPost, adminapi.ExplainPath, q, x)
	}
	ctx, err := provision(f.config, f.adapter)
	if err != nil {
		return nil, err
	}
	return explain(ctx, q)
}

// parseHeaders reads "Name: value" lines. An error repeats no value.
func parseHeaders(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, errors.New(`header: allowed: "Name: value"`)
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h, nil
}
