//go:build !race

package identity

const raceDetector = false
