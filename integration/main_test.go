package integration

import (
	"os"
	"testing"

	"github.com/caddy-admission/gateway/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
