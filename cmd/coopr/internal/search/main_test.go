package search_test

import (
	"testing"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }
