// The console of an agent with certificates: no click logs in, and the cookie is bound to the host.
import assert from 'node:assert/strict';
import { get } from 'node:https';
import { after, before, test } from 'node:test';
import { Agent, Browser } from './world.mjs';

let agent;
let b;

before(async () => {
  agent = await Agent.found();
  b = await Browser.start(agent);
});
after(async () => {
  await b?.close();
  await agent?.close();
});

// The browser of the stories verifies no certificate, as its store of roots is the machine's. It refuses Ed25519 anyway.
test('the root for browsers verifies the page, without algorithms that browsers refuse', async () => {
  const status = await new Promise((done, fail) => {
    const sigalgs = 'ecdsa_secp256r1_sha256:rsa_pss_rsae_sha256';
    get(agent.url, { ca: agent.browserRoot, sigalgs, agent: false }, (r) => r.resume().on('end', () => done(r.statusCode))).on('error', fail);
  });
  assert.equal(status, 200);
});

test('a token logs in at an agent with certificates', async () => {
  const { page } = b;
  await page.goto(agent.url);
  await page.getByRole('button', { name: 'Use a token' }).click();
  assert.equal(await page.getByRole('button', { name: 'Continue as the dev agent' }).count(), 0);
  await page.getByLabel('Token').fill(agent.token);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Home' }).waitFor();
  await page.getByText('There are no clusters, and no templates either. Import some:').waitFor();
  await page.getByText('live', { exact: true }).waitFor();
  const cookies = await b.context.cookies();
  assert.deepEqual(cookies.map((c) => [c.name, c.httpOnly, c.secure]), [['__Host-coopr-session', true, true]]);
  const refused = await page.evaluate(() => fetch('/console/dev', { method: 'POST', headers: { 'Coopr-Csrf': '1' } }).then((r) => r.status));
  assert.equal(refused, 403);
  await page.reload();
  await page.getByRole('heading', { level: 1, name: 'Home' }).waitFor();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('heading', { level: 1, name: 'Log in to Coopr' }).waitFor();
  assert.deepEqual(await b.context.cookies(), []);
  assert.deepEqual(b.complaints('403'), []);
});
