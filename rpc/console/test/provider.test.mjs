// The console's log-in on the pages of a real identity provider, and what others try with it.
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { Agent, Browser } from './world.mjs';

let agent;
let b;
let page;

before(async () => {
  agent = await Agent.trusting();
  b = await Browser.start(agent);
  page = b.page;
});
after(async () => {
  await b?.close();
  await agent?.close();
});

const heading = (name) => page.getByRole('heading', { level: 1, name }).waitFor();
/** said waits for a sentence on the page that somebody sees who is not logged in. */
const said = async (sentence) => {
  await heading('Log in to Coopr');
  await page.getByRole('status').getByText(sentence).waitFor();
};
const cookies = async () => (await b.context.cookies(agent.url)).map((c) => c.name).sort();

/** leave goes to the provider's page, from the page's form. */
async function leave() {
  await page.getByRole('button', { name: "Use your company's page" }).click();
  await page.getByLabel('Tenant').fill('default');
  await page.getByLabel('Identity provider').fill('sso');
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
  await page.waitForURL((at) => at.href.startsWith(agent.issuer));
}

/** confirm logs in on the provider's page. It returns where the browser comes back to. If held, the page has no script that finishes the login. */
async function confirm(name, held = false) {
  const script = `${agent.url}/console/app.js`;
  if (held) await page.route(script, (r) => r.fulfill({ body: '', contentType: 'text/javascript' }));
  await page.locator('input[name=username]').fill(name);
  await page.locator('input[name=password]').fill(`words of ${name}`);
  await page.keyboard.press('Enter');
  await page.waitForURL((at) => at.href.startsWith(agent.url));
  const came = page.url();
  if (held) await page.unroute(script);
  return came;
}

/** complaints returns those that are not about the provider's page. */
const complaints = (...expected) => b.complaints(...expected).filter((f) => !f.includes(agent.issuer));

test("somebody logs in on the company's page, and is where they wanted to be", async () => {
  await page.goto(`${agent.url}/#/clusters?q=shop`);
  await heading('Log in to Coopr');
  await page.getByRole('button', { name: "Use your company's page" }).click();
  await b.good('login-provider');
  await page.reload();
  await leave();
  const sent = new URL(page.url());
  assert.ok(sent.href.startsWith(agent.issuer));
  assert.deepEqual(await cookies(), ['coopr-session-login']);
  const [pending] = await b.context.cookies(agent.url);
  assert.deepEqual([pending.httpOnly, pending.secure, pending.sameSite, pending.path], [true, true, 'Strict', '/']);
  await confirm('ann');
  await heading('Clusters');
  assert.equal(page.url(), `${agent.url}/#/clusters?q=shop`);
  await page.getByText('sso.ann').waitFor();
  assert.deepEqual(await cookies(), ['coopr-session']);
  const seen = await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage }) + location.href);
  assert.ok(!/coopr_|code=|state=/.test(seen), seen);
  // Somebody else's link does not end the session, nor does it open another one.
  await page.goto(`${agent.url}/console/callback?code=theirs&state=theirs`);
  await heading('Home');
  await page.getByText('sso.ann').waitFor();
  await page.getByRole('button', { name: 'Log out' }).click();
  await heading('Log in to Coopr');
  assert.deepEqual(complaints('401'), []);
});

test('a login counts once, and only in the browser that began it', async () => {
  await leave();
  const came = await confirm('ann', true);
  const others = await b.browser.newContext();
  const other = await others.newPage();
  await other.goto(came);
  await other.getByRole('status').getByText('this browser has begun no login').waitFor();
  assert.equal((await others.cookies()).length, 0);
  await others.close();
  const kept = await b.context.cookies(agent.url);
  await page.goto(came);
  await heading('Home');
  await page.getByText('sso.ann').waitFor();
  await page.getByRole('button', { name: 'Log out' }).click();
  await heading('Log in to Coopr');
  await page.goto(came);
  await said('this browser has begun no login');
  await b.good('login-late');
  // Even a browser that has kept its cookie.
  await b.context.addCookies(kept);
  await page.goto('about:blank');
  await page.goto(came);
  await said('you are not let in');
  assert.deepEqual(await cookies(), []);
  assert.deepEqual(complaints('401'), []);
});

test('a login that is too old, forged or refused says what to do', async () => {
  await leave();
  const late = await confirm('ann', true);
  await b.context.clearCookies(); // as a browser does after ten minutes
  await page.goto(late);
  await said('took longer than ten minutes: log in again');
  await leave();
  const forged = new URL(await confirm('ann', true));
  forged.searchParams.set('state', 'guess');
  await page.goto(forged.href);
  await said('you are not let in');
  await leave();
  await confirm('eve');
  await said('you are not let in');
  await page.goto(`${agent.url}/console/callback?error=access_denied&error_description=Call+0900`);
  await said("the login was refused or cancelled on your company's page");
  await page.goto('about:blank');
  await page.goto(`${agent.url}/console/callback?error=%3Cimg%20src=x%20onerror=alert(1)%3E`);
  await said("your company's page reports an error (?)");
  assert.equal(await page.getByText('0900').count(), 0);
  assert.deepEqual(await cookies(), []);
  assert.deepEqual(complaints('401'), []);
});

test('no link sends the browser elsewhere', async () => {
  for (const where of ['/?next=//evil.example', '/console/callback?next=//evil.example&error=access_denied', '/console/callback#//evil.example']) {
    await page.goto('about:blank');
    await page.goto(agent.url + where);
    await heading('Log in to Coopr');
    assert.equal(new URL(page.url()).origin, agent.url);
  }
  for (const kept of ['//evil.example', 'https://evil.example/', 'javascript:alert(1)', '#//evil.example']) {
    await page.evaluate((place) => sessionStorage.setItem('coopr-place', place), kept);
    await page.goto(`${agent.url}/console/callback?error=access_denied`);
    await said('Not logged in');
    assert.equal(page.url(), `${agent.url}/${kept.startsWith('#') ? kept : ''}`);
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  }
  const begin = { tenant: 'default', method: 'sso', redirect: 'https://evil.example/', next: '//evil.example' };
  const answer = await page.evaluate(async (body) => {
    const r = await fetch('/console/begin', { method: 'POST', headers: { 'Coopr-Csrf': '1', 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
    return r.json();
  }, begin);
  assert.ok(answer.url, JSON.stringify(answer));
  const sent = new URL(answer.url);
  assert.equal(sent.searchParams.get('redirect_uri'), `${agent.url}/console/callback`);
  assert.equal(sent.searchParams.get('code_challenge_method'), 'S256');
  for (const part of ['state', 'nonce', 'code_challenge']) assert.ok(sent.searchParams.get(part).length > 20, part);
  assert.ok(!answer.url.includes('evil'), answer.url);
  // A request that names another host, as through a proxy that passes on what it gets.
  const status = await new Promise((done, fail) => {
    const headers = { Host: 'evil.example', 'Sec-Fetch-Site': 'same-origin', 'Coopr-Csrf': '1', 'Content-Type': 'application/json' };
    const r = request(`${agent.url}/console/begin`, { method: 'POST', headers }, (a) => a.resume().on('end', () => done(a.statusCode)));
    r.on('error', fail).end(JSON.stringify(begin));
  });
  assert.equal(status, 409);
  assert.deepEqual(complaints(), []);
});
