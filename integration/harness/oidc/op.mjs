// An OpenID provider (npm oidc-provider, unchanged) with one client, "ci", that logs out by back-channel.
// env: OIDC_MODULE (file of the package), PORT, REDIRECT (the client's redirect URI), LOGOUT (its back-channel logout URI),
//      SECRET (the client's). One line of JSON per request: method and path, user agent, status.
const { Provider } = await import(process.env.OIDC_MODULE);
const { PORT, REDIRECT, LOGOUT, SECRET } = process.env;
const provider = new Provider(`http://127.0.0.1:${PORT}`, {
  clients: [{
    client_id: 'ci', client_secret: SECRET, redirect_uris: [REDIRECT], response_types: ['code'], grant_types: ['authorization_code'],
    backchannel_logout_uri: LOGOUT, backchannel_logout_session_required: true,
  }],
  cookies: { keys: ['a cookie key of the tests'] },
  pkce: { required: () => false },
  features: { backchannelLogout: { enabled: true }, devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
});
for (const event of ['backchannel.success', 'backchannel.error']) {
  provider.on(event, (_ctx, err) => console.log(JSON.stringify({ event, error: err instanceof Error ? err.message : undefined })));
}
provider.use(async (ctx, next) => {
  await next();
  console.log(JSON.stringify({ request: `${ctx.method} ${ctx.path}`, agent: ctx.get('user-agent'), status: ctx.status }));
});
provider.listen(Number(PORT), '127.0.0.1');
