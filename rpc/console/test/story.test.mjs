// A person's way through the console, on a real agent: log in, create the demo's shop, watch it, lose the agent, delete the shop.
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Agent, Browser, eventually } from './world.mjs';

let agent;
let b;
let page;

before(async () => {
  agent = await Agent.start();
  b = await Browser.start(agent);
  page = b.page;
});
after(async () => {
  await b?.close();
  await agent?.close();
});

/** heading waits for a page by its heading. */
const heading = (name) => page.getByRole('heading', { level: 1, name }).waitFor();
const follow = (name) => page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name }).click();

test('one click logs in, and no script can read the token', async () => {
  await page.goto(agent.url);
  await heading('Log in to Coopr');
  await b.good('login');
  await page.getByRole('button', { name: 'Use a token' }).click();
  await page.getByLabel('Token').fill('guess');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('alert').waitFor();
  await page.getByRole('button', { name: 'Continue as the dev agent' }).click();
  await heading('Home');
  const seen = await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage }));
  assert.equal(seen, '{}');
  const [cookie] = await b.context.cookies();
  assert.deepEqual(
    [cookie.name, cookie.httpOnly, cookie.secure, cookie.sameSite, cookie.path, cookie.expires],
    ['coopr-session', true, true, 'Strict', '/', -1],
  );
  assert.equal(Buffer.from(cookie.value, 'base64url').toString(), agent.token);
  // A browser reports each answer that is an error.
  assert.deepEqual(b.complaints('401'), []);
});

test('an empty mesh says what to do', async () => {
  await page.getByText('There are no clusters. Templates that you can start:').waitFor();
  await page.getByText('live', { exact: true }).waitFor();
  await b.good('home-empty');
  await follow('Clusters');
  await heading('Clusters');
  await page.getByText('There are no clusters.').waitFor();
  await follow('Home');
  await page.getByRole('main').getByRole('link', { name: 'Shop' }).click();
  await heading('Create a cluster');
});

test('a shop is previewed and created, paused and resumed', async () => {
  // The store is not installed before the page has shown what it should.
  const gate = join(agent.dir, 'gate');
  const service = await agent.api('GET', '/v1/services/shop-store');
  const { script } = service.provisioner.actions.install.fields;
  service.provisioner.actions.install.fields.script = script.replace('set -eu', `set -eu\nuntil [ -e '${gate}' ]; do sleep 0.1; done`);
  await agent.api('PUT', '/v1/services/shop-store', service);
  await page.getByLabel('Name', { exact: true }).fill('my-shop');
  await page.getByLabel('Nodes', { exact: true }).fill('1');
  assert.ok(await page.getByRole('button', { name: 'Create', exact: true }).isDisabled());
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('alert').waitFor(); // there is no layout for one node
  await b.good('create-refused');
  await page.getByLabel('Nodes', { exact: true }).fill('6');
  await page.getByText('Advanced', { exact: true }).click();
  await page.getByLabel('Configuration', { exact: true }).fill('{"shop": {"greeting": "It\'s open"}}');
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('heading', { name: 'Layout' }).waitFor();
  const command = await page.locator('.command code').innerText();
  assert.equal(command, `coopr cluster create my-shop --template shop --nodes 6 --set 'shop.greeting=It'\\''s open'`);
  await b.good('create');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await heading('Operation create');
  await page.getByRole('link', { name: /install: running/ }).waitFor();
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('button', { name: 'Resume' }).waitFor();
  await page.getByRole('heading', { name: 'Why it waits' }).waitFor();
  await b.good('operation-paused');
  writeFileSync(gate, '');
  await page.getByRole('button', { name: 'Resume' }).click();
  // Without a reload: the page is told.
  await page.getByRole('main').getByText('succeeded', { exact: true }).first().waitFor({ timeout: 120_000 });
  assert.equal(await page.getByRole('row').count(), 7);
  await b.good('operation');
  assert.deepEqual(b.complaints('422'), []);
});

test('phases and steps of a plan take orders, each after a question', async () => {
  const gate = join(agent.dir, 'gate');
  const dialog = page.getByRole('dialog');
  /** give gives an order on a part of the plan, and returns the text of the question. */
  const give = async (order, part) => {
    await page.getByRole('button', { name: `${order}: ${part}`, exact: true }).click();
    const asked = await dialog.getByRole('paragraph').innerText();
    await dialog.getByRole('button', { name: order, exact: true }).click();
    await dialog.waitFor({ state: 'hidden' });
    await page.getByText(`The order has been given. ${order}: ${part}.`).waitFor();
    return asked;
  };
  const row = (part) => page.getByRole('row').filter({ has: page.getByRole('rowheader', { name: part, exact: true }) });
  await page.getByText('Phases and steps of the plan, and orders on them').click();
  await row('plan deploy').getByText('complete', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Steps: phase shop-store' }).click();
  await b.good('orders');
  // The store is installed again, and waits for the gate.
  rmSync(gate);
  await page.getByRole('button', { name: 'Restart: phase shop-store', exact: true }).click();
  await dialog.getByText(/again from the start/).waitFor();
  await b.good('order');
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  assert.match(await give('Restart', 'phase shop-store'), /What runs now is cancelled/);
  await page.getByRole('link', { name: /install: running/ }).waitFor();
  assert.match(await give('Pause', 'plan deploy'), /Steps that have begun continue to their ends/);
  await row('plan deploy').getByText('waiting', { exact: true }).waitFor();
  assert.match(await give('Continue', 'plan deploy'), /failed steps are tried again/);
  assert.match(await give('Force complete', 'phase shop-store'), /as complete without being carried out/);
  await row('phase shop-store').getByText('complete', { exact: true }).waitFor();
  writeFileSync(gate, '');
  await give('Restart', 'phase shop-store');
  await row('plan deploy').getByText('complete', { exact: true }).waitFor({ timeout: 120_000 });
  await page.getByRole('main').getByText('succeeded', { exact: true }).first().waitFor({ timeout: 120_000 });
  assert.deepEqual(b.complaints(), []);
});

test('a plan has a timeline', async () => {
  await page.getByRole('button', { name: 'Timeline' }).click();
  const bars = page.locator('.timeline').getByRole('link');
  await page.locator('.timeline').getByRole('link', { name: /^install shop-store on .*: succeeded, by agent .*, for / }).first().waitFor();
  // Orders had tasks repeated: each attempt has its bar.
  const tasks = await agent.api('GET', `/v1/operations/${page.url().match(/operation\/([^?]+)/)[1]}/tasks`);
  assert.equal(await bars.count(), tasks.flatMap((t) => t.attempts ?? []).length);
  await b.good('timeline');
  await page.getByRole('combobox', { name: /^Rows/ }).selectOption('actions');
  await page.getByRole('list', { name: 'install shop-store' }).waitFor();
  await page.reload(); // it is a link
  await page.getByRole('list', { name: 'install shop-store' }).waitFor();
  await page.getByRole('button', { name: 'Matrix' }).click();
  assert.deepEqual(b.complaints(), []);
});

test('a task has a page', async () => {
  await page.getByRole('link', { name: /install: succeeded/ }).first().click();
  await heading(/^install/);
  await page.getByRole('heading', { name: 'Log' }).waitFor();
  await b.good('task');
  await page.getByText('The task has printed nothing.').waitFor();
  assert.deepEqual(b.complaints('404'), []);
});

test('the cluster is active, and its page works by keyboard', async () => {
  await page.getByRole('main').getByRole('link', { name: 'Cluster my-shop' }).click();
  await heading('Cluster my-shop');
  await page.getByText('active', { exact: true }).first().waitFor();
  assert.equal(await page.getByRole('rowheader').count(), 6);
  await page.getByRole('tab', { name: 'Nodes' }).focus();
  for (const [i, name] of ['Operations', 'Services', 'Configuration', 'History', 'Logs', 'Events'].entries()) {
    await page.keyboard.press('ArrowRight');
    await page.getByRole('tab', { name, selected: true }).waitFor();
    await b.good(`cluster-${i + 2}-${name.toLowerCase()}`);
  }
  await page.keyboard.press('ArrowRight');
  await b.good('cluster-1-nodes');
  // A link to the shop is one to a web page.
  const shop = await page.locator('.facts a[target=_blank]').first().getAttribute('href');
  assert.match(shop, /^http:/);
  await follow('Clusters');
  await page.getByRole('link', { name: 'my-shop' }).waitFor();
  await b.good('clusters');
  await page.getByLabel(/^Search/).fill('nothing like it');
  await page.getByText('No cluster matches.').waitFor();
  assert.match(page.url(), /q=nothing\+like\+it/);
  await page.reload();
  await page.getByText('No cluster matches.').waitFor();
  await follow('Home');
  await heading('Home');
  await page.getByText('No operation is at work.').waitFor();
  await b.good('home');
  assert.deepEqual(b.complaints(), []);
});

test('a cluster is changed, after a preview', async () => {
  await page.goto(`${agent.url}/#/clusters`);
  await page.getByRole('link', { name: 'my-shop' }).click();
  await page.getByRole('link', { name: 'Change …' }).click();
  await heading('Change cluster my-shop');
  const apply = page.getByRole('button', { name: 'Apply' });
  const command = page.locator('.command code');
  const done = async (type) => {
    await heading(`Operation ${type}`);
    await page.getByRole('main').getByText('succeeded', { exact: true }).first().waitFor({ timeout: 120_000 });
    await page.goBack();
    await heading('Change cluster my-shop');
  };
  assert.ok(await apply.isDisabled());
  for (const [what, type, word] of [['Stop services', 'stop', ''], ['Start services', 'start', ''], ['Restart services', 'restart', ' shop-web']]) {
    await page.getByRole('combobox', { name: /^Change/ }).selectOption(what);
    await page.getByLabel('Services', { exact: true }).fill(word.trim());
    assert.equal(await command.innerText(), `coopr cluster ${type} my-shop${word}`);
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.getByRole('heading', { name: 'Plan' }).waitFor();
    if (type === 'stop') await b.good('change-stop');
    await apply.click();
    await done(type);
  }
  await page.getByRole('combobox', { name: /^Change/ }).selectOption('Configure');
  await page.getByLabel('Values', { exact: true }).fill('{"shop": {"greeting": "Hallo"}}');
  assert.equal(await command.innerText(), 'coopr cluster configure my-shop --set shop.greeting=Hallo');
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('heading', { name: 'Plan' }).waitFor();
  await page.getByLabel('Values', { exact: true }).fill('{"shop": {"greeting": "Moin"}}');
  assert.ok(await apply.isDisabled()); // that was not previewed
  await page.getByRole('button', { name: 'Preview' }).click();
  await b.good('change-configure');
  await apply.click();
  await done('configure');
  assert.equal((await agent.api('GET', '/v1/clusters/my-shop/config')).shop.greeting, 'Moin');
  await page.getByRole('combobox', { name: /^Change/ }).selectOption('Add nodes');
  await page.getByLabel('Number of nodes').fill('2');
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('heading', { name: 'Nodes that change' }).waitFor();
  await b.good('change-grow');
  // The answer is lost. The nodes are added once, though it is asked for again.
  await page.route('**/grow?dryRun=false', async (r) => {
    await r.fetch();
    await r.abort();
  }, { times: 1 });
  await apply.click();
  await page.getByRole('alert').waitFor();
  await eventually('the nodes are added', async () => {
    const c = await agent.api('GET', '/v1/clusters/my-shop');
    return c.nodes.length === 8 && c.status === 'active';
  }, 120_000);
  await apply.click();
  await done('grow');
  assert.equal((await agent.api('GET', '/v1/clusters/my-shop')).nodes.length, 8);
  await page.getByRole('combobox', { name: /^Change/ }).selectOption('Remove nodes');
  await page.getByLabel('Nodes by name').fill('no-such-node');
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('alert').waitFor();
  assert.ok(await apply.isDisabled());
  await page.getByLabel('Nodes by name').fill('');
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('heading', { name: 'Nodes that change' }).waitFor();
  // Somebody else removes the node that would be removed. Another one is removed only once it was shown.
  const named = page.locator('section section tbody').last().getByRole('rowheader').first();
  const first = await named.innerText();
  await agent.coopr('cluster', 'shrink', 'my-shop', '--nodes', '1', '--yes');
  await apply.click();
  await page.getByText('the cluster has changed since the preview').waitFor();
  assert.notEqual(await named.innerText(), first);
  assert.equal((await agent.api('GET', '/v1/clusters/my-shop')).nodes.length, 7);
  await apply.click();
  await done('shrink');
  assert.equal((await agent.api('GET', '/v1/clusters/my-shop')).nodes.length, 6);
  await page.goto(`${agent.url}/#/clusters`);
  assert.deepEqual(b.complaints('422', '404', '400', 'ERR_FAILED'), []);
});

test('definitions, the mesh, operations and the audit log can be looked at', async () => {
  await follow('Definitions');
  await heading('Definitions');
  await page.getByRole('link', { name: 'shop', exact: true }).waitFor();
  await b.good('definitions');
  // What is typed right after a link was followed is for the page to which it leads.
  await page.evaluate(() => {
    document.querySelector('nav[aria-label="Definitions"] a[href$="services"]').click();
    const search = document.querySelector('input[type="search"]');
    search.value = 'WEB';
    search.dispatchEvent(new Event('input', { bubbles: true }));
  });
  await page.getByText('1 definition', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'shop-web' }).click();
  await heading('shop-web');
  await page.getByLabel('Document').getByText('"provisioner"').waitFor();
  await b.good('definition');
  await follow('Mesh');
  await heading('Mesh');
  await page.getByText('1 of 1 agent alive').waitFor();
  assert.equal(await page.getByRole('rowheader').count(), 1);
  await b.good('mesh');
  await page.getByLabel(/^Search/).fill('alive=false');
  await page.getByText('No agent matches.').waitFor();
  await follow('Operations');
  await heading('Operations');
  await page.getByRole('link', { name: 'configure' }).waitFor();
  await b.good('operations');
  await page.getByLabel(/^Search/).fill('GROW');
  await page.getByText('1 operation', { exact: true }).waitFor();
  await page.getByRole('cell', { name: 'my-shop' }).waitFor();
  await follow('Audit log');
  await heading('Audit log');
  // Records of what was made have no values from before.
  await page.locator('details').filter({ hasText: 'Before' }).first().locator('summary').click();
  await page.getByText('Before', { exact: true }).first().waitFor();
  await b.good('audit');
  await page.getByLabel('Cluster', { exact: true }).fill('my-shop');
  await page.getByLabel('Types', { exact: true }).fill('cluster.*');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Read again' }).waitFor();
  await eventually('only records of the cluster are shown', async () => {
    const types = await page.locator('tbody td:nth-child(3)').allInnerTexts();
    return types.length > 0 && types.every((t) => t.startsWith('cluster.'));
  });
  await page.goto(`${agent.url}/#/audit?actor=nobody%22%3Cimg%20src%3Dx%3E`);
  await page.getByText('There are no such records.').waitFor();
  assert.deepEqual(b.complaints(), []);
});

test('a viewer sees everything and can order nothing', async () => {
  const user = { name: 'rita', role: 'read', password: 'four random words here' };
  await agent.api('POST', '/v1/users', user);
  const context = await b.browser.newContext();
  try {
    const other = await context.newPage();
    await other.goto(agent.url);
    await other.getByLabel('Tenant').fill('default');
    await other.getByLabel('Name', { exact: true }).fill('rita');
    await other.getByLabel('Password').fill(user.password);
    await other.keyboard.press('Enter');
    await other.getByText('rita (default)').waitFor();
    await other.goto(`${agent.url}/#/cluster/my-shop`);
    await other.getByRole('heading', { name: 'Cluster my-shop' }).waitFor();
    assert.equal(await other.getByRole('link', { name: 'Change …' }).count(), 0);
    assert.equal(await other.getByRole('button', { name: 'Delete …' }).count(), 0);
    const { id, operation } = await agent.api('GET', '/v1/clusters/my-shop');
    await other.goto(`${agent.url}/#/operation/${operation}`);
    await other.getByRole('rowheader').first().waitFor();
    assert.equal(await other.getByRole('heading', { name: 'Orders' }).count(), 0);
    await other.goto(`${agent.url}/#/cluster/${id}/change`);
    await other.getByText('You may not change this cluster.').waitFor();
    const refused = await other.evaluate((id) => fetch(`/v1/clusters/${id}/plans/deploy/restart`, { method: 'POST', headers: { 'Coopr-Csrf': '1' } })
      .then((r) => r.status), id);
    assert.equal(refused, 403);
  } finally {
    await context.close();
  }
});

test('hostile texts stay texts', async () => {
  const evil = '<img src=x onerror=alert(1)>';
  await follow('Clusters');
  await page.getByRole('link', { name: 'my-shop' }).waitFor();
  const t = await agent.api('GET', '/v1/clustertemplates/shop');
  await agent.api('PUT', '/v1/clustertemplates/shop', {
    ...t, label: `${evil}\u202egnp`, description: evil + 'x'.repeat(3900), links: [{ label: evil, url: 'javascript:alert(2)' }],
  });
  await follow('Create');
  await heading('Create a cluster');
  await page.locator('option', { hasText: evil }).waitFor({ state: 'attached' });
  await page.getByRole('combobox', { name: /^Template/ }).selectOption('shop');
  await page.getByText('x'.repeat(100)).waitFor();
  await b.good('hostile');
  await page.goto(`${agent.url}/#/definitions`);
  // The mark of direction in the label does not reach the description.
  await page.locator('td bdi', { hasText: evil }).first().waitFor();
  await b.good('hostile-definitions');
  await page.getByRole('link', { name: 'shop', exact: true }).click();
  await page.getByLabel('Document').getByText(evil).waitFor();
  await b.good('hostile-definition');
  await page.goto(`${agent.url}/#/definitions/services/${encodeURIComponent(evil)}`);
  await page.getByRole('alert').waitFor();
  await page.goto(`${agent.url}/#/cluster/${encodeURIComponent(evil)}/change?what=${encodeURIComponent(evil)}`);
  await page.getByRole('alert').waitFor();
  await page.goto(`${agent.url}/#/clusters?q=${encodeURIComponent(evil)}&sort=${encodeURIComponent(evil)}&cursor=${encodeURIComponent(evil)}&page=x`);
  await page.getByRole('alert').waitFor();
  await page.goto(`${agent.url}/#/cluster/${encodeURIComponent(evil)}`);
  await page.getByRole('alert').waitFor();
  assert.equal(await page.locator('main img').count(), 0);
  await agent.api('PUT', '/v1/clustertemplates/shop', { ...t });
  assert.deepEqual(b.complaints('404', '422'), []);
});

test('another page on the same host can do nothing with the cookie', async () => {
  const body = JSON.stringify({ name: 'stolen', clusterTemplate: 'shop', numMachines: 6 });
  const server = createServer((_, w) => {
    w.setHeader('Content-Type', 'text/html');
    w.end(`<form method=post enctype=text/plain action="${agent.url}/v1/clusters"><input name='${body.slice(0, -1)},"x":"' value='"}'></form>`);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  try {
    const other = await b.context.newPage();
    await other.goto(`http://127.0.0.1:${server.address().port}/`);
    const statuses = await other.evaluate(async ([url, body]) => {
      const out = [];
      for (const [path, init] of [
        ['/v1/clusters', {}], ['/v1/clusters', { method: 'POST', body }], ['/console/logout', { method: 'POST' }], ['/console/dev', { method: 'POST' }],
      ])
        out.push(await fetch(url + path, { credentials: 'include', ...init }).then((r) => r.status, (e) => e.name));
      return out;
    }, [agent.url, body]);
    assert.deepEqual(statuses, ['TypeError', 'TypeError', 'TypeError', 'TypeError']); // nothing of the answers can be read
    const [answer] = await Promise.all([other.waitForNavigation(), other.evaluate(() => document.forms[0].submit())]);
    assert.equal(answer.status(), 403);
    await other.close();
  } finally {
    server.close();
  }
  assert.deepEqual((await agent.api('GET', '/v1/clusters')).map((c) => c.name), ['my-shop']);
  await page.goto(`${agent.url}/#/clusters`);
  await page.getByRole('link', { name: 'my-shop' }).waitFor(); // still logged in
});

test('a page survives its agent', async () => {
  await page.goto(`${agent.url}/#/clusters`);
  await page.getByText('live', { exact: true }).waitFor();
  await agent.kill();
  await page.getByText(/^No connection to the agent/).waitFor();
  await page.getByRole('link', { name: 'my-shop' }).waitFor(); // what was known is still shown
  await b.good('lost');
  await agent.run();
  await page.getByText('live', { exact: true }).waitFor({ timeout: 60_000 });
  await page.getByRole('link', { name: 'my-shop' }).click();
  await heading('Cluster my-shop');
  b.complaints();
});

test('the shop is deleted, after a question', async () => {
  await page.getByText('active', { exact: true }).first().waitFor();
  await page.getByRole('button', { name: 'Delete …' }).click();
  const dialog = page.getByRole('dialog');
  const button = dialog.getByRole('button', { name: 'Delete' });
  assert.ok(await button.isDisabled());
  await b.good('delete');
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: 'Delete …' }).click();
  await dialog.getByRole('textbox').fill('my-shop');
  await button.click();
  await heading('Operation delete');
  await page.getByRole('main').getByText('succeeded', { exact: true }).first().waitFor({ timeout: 120_000 });
  await follow('Clusters');
  await page.getByText('There are no clusters.').waitFor();
  await page.getByLabel('Status').selectOption('terminated');
  await page.getByRole('link', { name: 'my-shop' }).waitFor();
  assert.deepEqual(b.complaints(), []);
});

test('events are shown as they come, in the chosen colours, and a log is followed', async () => {
  const service = await agent.api('GET', '/v1/services/shop-store');
  service.provisioner.actions.install.fields.script += '\nfor i in $(seq 6000); do echo "<b>line</b> $i"; done\n';
  await agent.api('PUT', '/v1/services/shop-store', service);
  await follow('Events');
  await heading('Events');
  await page.getByText('live', { exact: true }).waitFor();
  const { operation } = await agent.api('POST', '/v1/clusters', { name: 'second', clusterTemplate: 'shop', numMachines: 3 });
  await page.getByRole('cell', { name: 'task.changed' }).first().waitFor();
  await b.good('events');
  await page.getByLabel('Colours').selectOption('dark');
  const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.reload();
  await heading('Events');
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), dark);
  await page.getByLabel('Colours').selectOption('light');
  assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), dark);
  await page.getByLabel('Colours').selectOption('system');
  const tasks = await agent.api('GET', `/v1/operations/${operation.id}/tasks`);
  const loud = tasks.find((t) => t.action === 'INSTALL' && t.service === 'shop-store');
  await page.goto(`${agent.url}/#/task/${encodeURIComponent(loud.id)}`);
  await heading('install shop-store');
  const log = page.locator('pre.log');
  await eventually('the log is there to its end', async () => (await log.innerText().catch(() => '')).includes('<b>line</b> 6000'));
  assert.equal(await log.locator('b').count(), 0);
  await page.getByText(/^The first .* lines are left out here/).waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('LINE</b> 599');
  await page.getByText('10 of 5,000 lines', { exact: true }).waitFor(); // 599 is left out
  await b.good('log');
  // The file has all lines, also those that the page leaves out.
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Download' }).click()]);
  assert.equal(file.suggestedFilename(), `${loud.id.replaceAll('/', '-')}-1.log`);
  const whole = readFileSync(await file.path(), 'utf8').match(/<b>line<\/b> \d+/g);
  assert.deepEqual([whole.length, whole[0], whole.at(-1)], [6000, '<b>line</b> 1', '<b>line</b> 6000']);
  assert.deepEqual(b.complaints('404'), []);
});

/** marked waits for the marked line of a log, which has a text, and returns whether it is in view. */
const marked = async (page, words) => {
  const line = page.locator('.line[aria-current]').filter({ hasText: words });
  await line.waitFor();
  await eventually('the marked line is in view', () => line.evaluate((e) => {
    const [at, box] = [e.getBoundingClientRect(), e.closest('pre').getBoundingClientRect()];
    return at.top >= Math.max(0, box.top) && at.bottom <= Math.min(innerHeight, box.bottom);
  }));
};

test('a line of a log is a link', async () => {
  await b.context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.locator('a[data-key]').first().click(); // of what the search has found
  await page.getByRole('button', { name: 'Copy link to the line' }).click();
  await page.getByText('Copied').waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  const key = new URL(copied.replace('/#', '')).searchParams.get('line');
  const words = (await page.locator('.line[aria-current]').innerText()).trim();
  const other = await b.context.newPage();
  try {
    await other.goto(copied);
    await marked(other, words.slice(-15));
    assert.equal(await other.locator('.line[aria-current] a').getAttribute('data-key'), key);
    // The page has left out a line at the beginning; a link shows it all the same, with those around it.
    await other.goto(copied.replace(`line=${key}`, 'line=7'));
    await marked(other, /<b>line<\/b> \d$/m);
    assert.equal(await other.locator('.line[aria-current] a').getAttribute('data-key'), '7');
    await other.getByText(/^1,00\d lines after these are left out here/).waitFor();
    // By keyboard from line to line.
    await other.getByRole('link', { name: 'Line 7', exact: true }).focus();
    await other.keyboard.press('ArrowDown');
    await other.keyboard.press('Enter');
    await other.locator('.line[aria-current] a[data-key="8"]').waitFor();
    assert.match(other.url(), /line=8$/);
    await other.getByLabel('Follow').check();
    await other.locator('a[data-key="6000"]').waitFor();
    await other.goto(copied.replace(`line=${key}`, 'line=70000'));
    await other.getByText('The linked line is not in this log.').waitFor();
  } finally {
    await other.close();
  }
  assert.deepEqual(b.complaints(), []);
});

test('the logs of a cluster are merged', async () => {
  const { id } = await agent.api('GET', '/v1/clusters/second');
  await page.goto(`${agent.url}/#/cluster/second?tab=logs`);
  const log = page.locator('pre.log');
  await log.getByText(/shop-store install.*line<\/b> 6000/).waitFor();
  assert.equal(await page.locator('main b').count(), 0);
  await page.getByText('live', { exact: true }).waitFor(); // also at a link by name
  await page.getByRole('tabpanel').getByLabel('Search').fill('line</b> 599');
  await page.getByText(/^1\d of [0-9,]+ lines$/).waitFor();
  await page.locator('a[data-key]').first().click();
  const words = (await page.locator('.line[aria-current]').innerText()).trim().slice(-15);
  await b.good('cluster-logs');
  await page.reload();
  await marked(page, words);
  await page.getByText('These are lines around the linked one.').waitFor();
  await page.getByLabel('Follow').check();
  // What a later operation prints joins it, on the page that is open.
  await page.getByRole('tabpanel').getByLabel('Search').fill('');
  const service = await agent.api('GET', '/v1/services/shop-store');
  const { fields } = service.provisioner.actions.configure;
  fields.script = fields.script.replace('set -eu', 'set -eu\necho "<i>late</i>" >&2');
  await agent.api('PUT', '/v1/services/shop-store', service);
  await agent.coopr('cluster', 'upgrade', 'second', 'shop-store', '--yes');
  await log.getByText('! <i>late</i>').first().waitFor();
  await page.getByRole('combobox', { name: /^Service/ }).selectOption('shop-web');
  await page.getByText('No task of this cluster has printed anything.').waitFor();
  assert.equal(await page.getByRole('tabpanel').locator('.command code').innerText(), 'coopr cluster logs second shop-web --follow');
  const user = await b.as('logan', 'user');
  try {
    await user.goto(`${agent.url}/#/cluster/${id}?tab=logs`);
    await user.getByRole('alert').waitFor(); // it is not theirs
  } finally {
    await user.context().close();
  }
  assert.deepEqual(b.complaints('404'), []);
});

test('a user sees what policies permit, and logs out', async () => {
  await agent.api('POST', '/v1/tenants', { name: 'acme' });
  const user = { name: 'ann', role: 'user', password: 'four random words here' };
  const r = await fetch(`${agent.url}/v1/users?tenant=acme`, {
    method: 'POST', headers: { Authorization: `Bearer ${agent.token}`, 'Content-Type': 'application/json' }, body: JSON.stringify(user),
  });
  assert.equal(r.status, 201, await r.text());
  await page.getByRole('button', { name: 'Log out' }).click();
  await heading('Log in to Coopr');
  assert.deepEqual(await b.context.cookies(), []);
  await page.getByLabel('Tenant').fill('acme');
  await page.getByLabel('Name', { exact: true }).fill('ann');
  await page.getByLabel('Password').fill(user.password);
  await page.keyboard.press('Enter');
  await page.getByText('ann (acme)').waitFor();
  await follow('Clusters');
  await page.getByText('There are no clusters.').waitFor();
  // By the page's cookie, the API refuses what the user may not do.
  assert.equal(await page.evaluate(() => fetch('/v1/users').then((r) => r.status)), 403);
  assert.equal(await page.evaluate(() => fetch('/v1/clusters', { method: 'POST', body: '{}' }).then((r) => r.status)), 403); // no header
  await follow('Mesh');
  await page.getByText('1 of 1 agent alive').waitFor();
  await follow('Audit log');
  await page.getByRole('alert').waitFor(); // users do not see it
  await follow('Home');
  await b.good('home-user');
  // The end of the session is noticed by the stream, without a click.
  const tokens = await (await fetch(`${agent.url}/v1/tokens?tenant=acme`, { headers: { Authorization: `Bearer ${agent.token}` } })).json();
  for (const t of tokens.filter((t) => t.actor === 'ann'))
    await fetch(`${agent.url}/v1/tokens/${t.id}?tenant=acme`, { method: 'DELETE', headers: { Authorization: `Bearer ${agent.token}` } });
  await page.getByText('The session has ended: log in again.').waitFor();
  await eventually('the page is quiet', () => b.complaints('403', '401').length === 0);
});
