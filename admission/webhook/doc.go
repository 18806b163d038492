// Package webhook decides whether a request is a genuine delivery of one
// known kind of sender.
//
// A delivery is checked in two steps. [Verifier.CheckHead] looks at the
// method, the declared length, the content headers and every signature and
// delivery header, in that order, and never touches the body. [Head.Verify]
// then checks the body's form and its MAC over exactly the bytes the sender
// signed. Only a verified body yields a [Delivery].
//
// What a sender signs, which headers it sends and how long it waits is a row
// of the profile table ([Lookup], [Names]); nothing else differs between
// senders.
//
// Values are immutable after construction and safe for concurrent use. No
// error, refusal or formatted value of this package contains a secret or a
// byte the caller chose.
package webhook
