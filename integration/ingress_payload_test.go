package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// githubPush is what GitHub sends for a push of one commit, as far as receivers look at it. digit makes its revision.
func githubPush(branch, digit string) string {
	who := `{"name":"alice","email":"alice@example.invalid","username":"alice"}`
	commit := fmt.Sprintf(`{"id":%q,"message":"m","timestamp":"2026-01-01T00:00:00Z","url":"http://forge.invalid/c","distinct":true,`+
		`"author":%s,"committer":%[2]s,"added":["f"],"removed":[],"modified":[]}`, revision(digit), who)
	return fmt.Sprintf(`{"ref":"refs/heads/%s","before":%q,"after":%q,"repository":%s,"commits":[%s],"head_commit":%[5]s,"pusher":%s}`,
		branch, revision("0"), revision(digit), repositoryJSON, commit, who)
}

const repositoryJSON = `{"name":"r","full_name":"team/r","html_url":"http://forge.invalid/team/r","clone_url":"http://forge.invalid/team/r.git"}`

func revision(digit string) string { return strings.Repeat("0", 40-len(digit)) + digit }

func githubPull(digit string) string {
	return fmt.Sprintf(`{"action":"opened","number":7,"pull_request":{"title":"main","body":"b","commits":1,"created_at":"2026-01-01T00:00:00Z",`+
		`"head":{"sha":%q,"ref":"topic"},"base":{"ref":"main","repo":%s},"_links":{"html":{"href":"http://forge.invalid/pull/7"}}},`+
		`"repository":%[2]s,"sender":{"login":"alice"}}`, revision(digit), repositoryJSON)
}

// commitsIn counts the commits that a push brings.
func commitsIn(t *testing.T, body []byte) int {
	t.Helper()
	var push struct{ Commits []json.RawMessage }
	if err := json.Unmarshal(body, &push); err != nil {
		t.Fatal(err)
	}
	return len(push.Commits)
}
