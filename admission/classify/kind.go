package classify

// Kind is what a request asks of a git server. The zero value is Other.
type Kind uint8

const (
	Other         Kind = iota
	ReadDiscovery      // GET info/refs?service=git-upload-pack
	PushDiscovery      // GET info/refs?service=git-receive-pack
	DumbDiscovery      // GET or HEAD info/refs without a query
	DumbHead           // GET or HEAD …/HEAD: git only if the caller asked this repository for info/refs in the last 60 s
	Dumb               // GET or HEAD of a file of the dumb protocol below objects/
	ReadRPC            // POST git-upload-pack
	PushRPC            // POST git-receive-pack
	ArchiveRPC         // POST git-upload-archive
	LFSBatch           // POST objects/batch
	LFSLocks           // list, create, verify and release locks
	LFSVerify          // POST verify, after an upload
	LFSObject          // GET, HEAD or PUT of one object
	numKinds
)

var kindNames = [numKinds]string{
	"other", "read_discovery", "push_discovery", "dumb_discovery", "dumb_head", "dumb",
	"read_rpc", "push_rpc", "archive_rpc", "lfs_batch", "lfs_locks", "lfs_verify", "lfs_object",
}

// String returns a fixed name, safe as a label.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return "invalid"
}

// Smart reports whether k makes the upstream run a git service or print its
// advertisement.
func (k Kind) Smart() bool {
	switch k {
	case ReadDiscovery, PushDiscovery, ReadRPC, PushRPC, ArchiveRPC:
		return true
	}
	return false
}

// The services of smart HTTP, as clients and servers spell them.
const (
	UploadPack    = "git-upload-pack"
	ReceivePack   = "git-receive-pack"
	UploadArchive = "git-upload-archive"
)

var kindServices = [numKinds]string{
	ReadDiscovery: UploadPack, ReadRPC: UploadPack,
	PushDiscovery: ReceivePack, PushRPC: ReceivePack,
	ArchiveRPC: UploadArchive,
}

// kindTypes holds the content type of each RPC (gitprotocol-http(5)).
var kindTypes = [numKinds]string{
	ReadRPC:    "application/x-git-upload-pack-request",
	PushRPC:    "application/x-git-receive-pack-request",
	ArchiveRPC: "application/x-git-upload-archive-request",
}

func (k Kind) dumb() bool { return k >= DumbDiscovery && k <= Dumb }

// method is the part of the request method that matters here. Methods are
// case-sensitive.
type method uint8

const (
	noMethod method = iota
	get
	head
	post
	put
)

func methodOf(s string) method {
	switch s {
	case "GET":
		return get
	case "HEAD":
		return head
	case "POST":
		return post
	case "PUT":
		return put
	}
	return noMethod
}
