// The whole life of a shop in the browser: it is made, grown, changed, upgraded with canaries, broken, repaired and deleted.
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Agent, Browser, eventually, shop } from './world.mjs';

let agent;
let b;
let page;

before(async () => {
  agent = await Agent.start({ empty: true });
  b = await Browser.start(agent);
  page = b.page;
});
after(async () => {
  await b?.close();
  await agent?.close();
});

const heading = (name) => page.getByRole('heading', { level: 1, name }).waitFor();
const cluster = () => agent.api('GET', '/v1/clusters/my-shop');
const dialog = () => page.getByRole('dialog');
const gate = () => join(agent.dir, 'gate'); // while it is there, version 2 of shop-web cannot be configured
const tab = (name) => page.getByRole('tab', { name: new RegExp(`^${name}`) }).click();
const command = () => page.locator('section .command code').innerText();
const row = (name) => page.getByRole('row').filter({ has: page.getByRole('rowheader', { name, exact: true }) });

/** open shows a tab of the cluster. */
async function open(name = 'Nodes') {
  await page.goto(`${agent.url}/#/clusters`);
  await page.getByRole('link', { name: 'my-shop' }).click();
  await heading('Cluster my-shop');
  await tab(name);
}

/** apply previews a change and applies it, and waits for the end of its operation. */
async function apply(type, picture = '') {
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('heading', { name: 'Preview' }).waitFor();
  if (picture) await b.good(picture);
  await page.getByRole('button', { name: 'Apply' }).click();
  await heading(`Operation ${type}`);
}
async function done(status = 'succeeded') {
  await page.locator('h1 + *, .row').getByText(status, { exact: true }).first().waitFor({ timeout: 120_000 });
}

/** write edits a definition in the page, and saves its next version. */
async function write(kind, name, change) {
  await page.goto(`${agent.url}/#/define/${kind}/${name}`);
  await heading(`Edit ${name}`);
  await page.getByLabel('Write as').selectOption('JSON');
  const area = page.getByRole('textbox', { name: 'Document' });
  await eventually('the document is JSON', async () => (await area.inputValue()).startsWith('{'));
  const document = JSON.parse(await area.inputValue());
  change(document);
  await area.fill(JSON.stringify(document, null, 2));
  await page.getByText('No faults.').waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
}
const script = (action, change) => (service) => {
  const { fields } = service.provisioner.actions[action];
  fields.script = change(fields.script);
};

test('a shop is made and grown', async () => {
  await page.goto(agent.url);
  await page.getByRole('button', { name: 'Continue as the dev agent' }).click();
  await heading('Home');
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Definitions' }).click();
  await page.getByRole('link', { name: 'Import …' }).click();
  await heading('Import definitions');
  await page.getByLabel('Folder').setInputFiles(shop);
  await page.getByText(/^7 files chosen/).waitFor();
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('heading', { name: 'What would be written' }).waitFor();
  await b.good('import');
  assert.deepEqual(await agent.api('GET', '/v1/services'), []); // nothing was written
  await page.getByRole('button', { name: 'Import' }).click();
  await page.getByRole('heading', { name: 'What was written' }).waitFor();
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Home' }).click();
  await heading('Home'); // what was written has links of its own
  await page.getByRole('main').getByRole('link', { name: 'Shop' }).click();
  await heading('Create a cluster');
  await page.getByLabel('Name', { exact: true }).fill('my-shop');
  await page.getByLabel('Nodes', { exact: true }).fill('4');
  await page.getByText('Advanced', { exact: true }).click();
  await page.getByLabel('Lease').fill('2h');
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('heading', { name: 'Layout' }).waitFor();
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await heading('Operation create');
  await done();
  await open();
  await page.getByRole('link', { name: 'Change …' }).click();
  await page.getByRole('combobox', { name: /^Change/ }).selectOption('Add nodes');
  await page.getByLabel('Number of nodes').fill('1');
  await apply('grow');
  await done();
  assert.equal((await cluster()).nodes.length, 5);
  assert.deepEqual(b.complaints(), []);
});

test('labels are edited, and the lease is prolonged', async () => {
  await open();
  await page.getByRole('button', { name: 'Edit labels …' }).click();
  const save = dialog().getByRole('button', { name: 'Save' });
  assert.ok(await save.isDisabled());
  await dialog().getByLabel('Labels').fill('team=shop\nwhy=<b>a=b</b>\nprotected');
  assert.equal(await dialog().locator('code').innerText(), `coopr cluster label my-shop team=shop 'why=<b>a=b</b>' protected`);
  await b.good('labels');
  await save.click();
  await dialog().waitFor({ state: 'hidden' });
  await page.getByText('why=<b>a=b</b>', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Edit labels …' }).click();
  await dialog().getByLabel('Labels').fill('bad label=1');
  await save.click();
  await dialog().getByRole('alert').waitFor(); // a key has no space
  await dialog().getByLabel('Labels').fill('team=till\nprotected');
  assert.equal(await dialog().locator('code').innerText(), 'coopr cluster label my-shop team=till why-');
  await save.click();
  await dialog().waitFor({ state: 'hidden' });
  assert.deepEqual((await cluster()).labels, { team: 'till', protected: '' });

  const { expireTime } = await cluster();
  await page.getByRole('button', { name: 'Prolong …' }).click();
  const prolong = dialog().getByRole('button', { name: 'Prolong' });
  await dialog().getByLabel('Time to add').fill('two hours');
  assert.ok(await prolong.isDisabled());
  await dialog().getByLabel('Time to add').fill('2h');
  await dialog().getByText(/^It would end at/).waitFor();
  assert.equal(await dialog().locator('code').innerText(), 'coopr cluster lease my-shop --add 2h');
  await b.good('lease');
  await prolong.click();
  await dialog().waitFor({ state: 'hidden' });
  assert.equal((await cluster()).expireTime, expireTime + 2 * 3600e3);
  await page.locator('.facts').getByText(/^in 3h 5/).waitFor();
  assert.deepEqual(b.complaints('422', '400'), []);
});

test('a service is added and removed, with a newer template', async () => {
  const action = (name) => `    ${name}:\n      type: shell\n      fields:\n        script: |\n          #!/bin/sh\n          set -eu\n          true\n`;
  await page.goto(`${agent.url}/#/define/services`);
  await heading('New service');
  await page.getByRole('textbox', { name: 'Document' }).fill(
    `name: shop-extra\nprovisioner:\n  actions:\n${['install', 'configure', 'start', 'stop', 'remove'].map(action).join('')}`);
  await page.getByText('No faults.').waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  await heading('shop-extra');
  await write('clustertemplates', 'shop', (t) => t.compatibility.services.push('shop-extra'));
  await open('Services');
  await page.getByText('The template has version 2; the cluster was made from version 1.').waitFor();
  await b.good('services');
  await page.getByRole('link', { name: 'Update to the template …' }).click();
  await heading('Change cluster my-shop');
  assert.equal(await command(), 'coopr cluster sync-template my-shop');
  await apply('sync-template', 'change-sync');
  await done();
  await open('Services');
  await page.getByRole('link', { name: 'Add services …' }).click();
  await page.getByRole('group', { name: 'Services to choose from' }).getByRole('button', { name: 'shop-extra' }).click();
  await page.getByLabel('Number of new nodes').fill('0');
  assert.equal(await command(), 'coopr cluster add-services my-shop shop-extra');
  await apply('add-services', 'change-add-services');
  await done();
  assert.ok((await cluster()).services.includes('shop-extra'));
  await open('Services');
  await page.getByRole('link', { name: 'Add services …' }).click();
  await page.getByText('The cluster has all services that its template permits.').waitFor();
  await page.getByRole('combobox', { name: /^Change/ }).selectOption('Remove services');
  await page.getByRole('group', { name: 'Services to choose from' }).getByRole('button', { name: 'shop-extra' }).click();
  assert.equal(await command(), 'coopr cluster remove-services my-shop shop-extra');
  await apply('remove-services', 'change-remove-services');
  await done();
  assert.ok(!(await cluster()).services.includes('shop-extra'));
  assert.deepEqual(b.complaints(), []);
});

test('a service is upgraded with canaries', async () => {
  await write('services', 'shop-web', script('configure', (text) => text.replace('set -eu', `set -eu\nif [ -e '${gate()}' ]; then echo the disk is full >&2; exit 1; fi`)));
  await open('Services');
  await row('shop-web').getByRole('link', { name: 'Upgrade: shop-web' }).click();
  await heading('Change cluster my-shop');
  assert.equal(await page.getByLabel('Services', { exact: true }).inputValue(), 'shop-web');
  await page.getByRole('combobox', { name: /^Order of the nodes/ }).selectOption('some at a time');
  await page.getByLabel(/^Nodes at a time/).fill('25%');
  assert.equal(await command(), `coopr cluster upgrade my-shop shop-web --strategy batch=25%`);
  await page.getByRole('combobox', { name: /^Order of the nodes/ }).selectOption('two canaries, then one after the other');
  await page.getByText(/^Each of the first two nodes waits/).waitFor();
  assert.equal(await command(), 'coopr cluster upgrade my-shop shop-web --strategy canary');
  await apply('upgrade', 'change-upgrade');
  await page.getByText('Phases and steps of the plan, and orders on them').click();
  // Each canary waits for an order on its phase.
  for (const left of [1, 0]) {
    const go = page.getByRole('button', { name: /^Continue: phase/ });
    await go.waitFor({ timeout: 120_000 });
    if (left) await b.good('canary');
    await go.click();
    await dialog().getByText(/the next canary is released/).waitFor();
    await dialog().getByRole('button', { name: 'Continue' }).click();
    await dialog().waitFor({ state: 'hidden' });
    if (left) await page.getByText('4 of 12 tasks').waitFor({ timeout: 120_000 }); // the first canary is done
  }
  await done();
  await open('Services');
  await row('shop-web').getByRole('cell', { name: '2', exact: true }).first().waitFor();
  assert.equal(await page.getByRole('link', { name: 'Upgrade: shop-web' }).count(), 0);
  assert.deepEqual(b.complaints(), []);
});

test('nodes are restarted, paused, resumed and replaced', async () => {
  const node = (await cluster()).nodes.find((n) => n.services.includes('shop-web')).hostname;
  const choose = async (action) => {
    await open();
    await page.getByRole('checkbox', { name: `Choose ${node}` }).check();
    await page.getByText('1 node chosen').waitFor();
    await page.getByRole('tabpanel').getByRole('link', { name: `${action} …` }).click();
    await heading('Change cluster my-shop');
    assert.equal(await page.getByLabel('Nodes by name').inputValue(), node);
  };
  await open();
  assert.ok(await page.getByRole('button', { name: 'Replace …' }).isDisabled()); // none is chosen
  await page.getByRole('checkbox', { name: `Choose ${node}` }).check();
  await b.good('nodes-chosen');
  await choose('Restart');
  assert.equal(await command(), `coopr node restart my-shop/${node}`);
  await apply('recover');
  await done();
  await choose('Pause');
  assert.equal(await command(), `coopr node pause my-shop/${node}`);
  await apply('pause-node', 'change-pause');
  await done();
  await open();
  await row(node).getByText('paused', { exact: true }).waitFor();
  await choose('Resume');
  assert.equal(await command(), `coopr node resume my-shop/${node}`);
  await apply('resume-node');
  await done();
  await choose('Replace');
  assert.equal(await command(), `coopr cluster replace-node my-shop ${node}`);
  await page.getByRole('checkbox', { name: /^Delete the machines without/ }).check();
  assert.equal(await command(), `coopr node replace my-shop/${node}`);
  await page.getByRole('checkbox', { name: /^Delete the machines without/ }).uncheck();
  await apply('replace-node', 'change-replace');
  await done();
  await eventually('the node is healthy again', async () => {
    const n = (await cluster()).nodes.find((n) => n.hostname === node);
    return n && Object.values(n.health?.services ?? {}).every((s) => s.status === 'healthy');
  });
  assert.deepEqual(b.complaints(), []);
});

test('recovery is paused and resumed', async () => {
  await open();
  await page.getByRole('button', { name: 'Pause recovery …' }).click();
  await dialog().getByLabel('Reason').fill('moving racks');
  assert.equal(await dialog().locator('code').innerText(), `coopr cluster pause-recovery my-shop --reason 'moving racks'`);
  await b.good('pause-recovery');
  await dialog().getByRole('button', { name: 'Pause recovery' }).click();
  await page.getByText(/^Recovery is paused by .*: moving racks/).waitFor();
  await page.getByRole('button', { name: 'Resume recovery …' }).click();
  await dialog().getByRole('button', { name: 'Resume recovery' }).click();
  await page.getByText(/^Recovery is paused by/).waitFor({ state: 'hidden' });
  assert.equal((await cluster()).recoveryPaused, undefined);
  assert.deepEqual(b.complaints(), []);
});

test('a bad upgrade breaks the shop, and a roll-back repairs it', async () => {
  await write('services', 'shop-web', script('configure', (text) => text.replace('set -eu', 'set -eu\necho broken on purpose >&2; exit 1')));
  await open('Services');
  await row('shop-web').getByRole('link', { name: 'Upgrade: shop-web' }).click();
  await page.getByRole('combobox', { name: /^If a task fails/ }).selectOption('leave the cluster as it is then');
  assert.equal(await command(), 'coopr cluster upgrade my-shop shop-web --on-failure leave');
  await apply('upgrade');
  await done('failed');
  await page.getByRole('button', { name: 'Timeline' }).click();
  await page.locator('.timeline').getByRole('link', { name: /^configure shop-web on .*: failed, by agent / }).first().waitFor();
  await b.good('timeline-failed');
  await page.getByRole('button', { name: 'Matrix' }).click();
  await page.getByRole('link', { name: /configure: failed/ }).first().click();
  await page.getByText('broken on purpose').first().waitFor();
  await open();
  await page.getByText('inconsistent', { exact: true }).first().waitFor();
  await b.good('inconsistent');
  await tab('History');
  const before = (await agent.api('GET', '/v1/clusters/my-shop/history?sort=-number')).find((s) => s.moment === 'after');
  await page.getByRole('button', { name: `Compare: snapshot ${before.number}`, exact: true }).click();
  await page.getByRole('rowheader', { name: /definitions\.shop-web/ }).first().waitFor();
  await b.good('history');
  await page.getByRole('link', { name: `Roll back: snapshot ${before.number}`, exact: true }).click();
  await heading('Change cluster my-shop');
  assert.equal(await command(), `coopr cluster rollback my-shop --to ${before.number}`);
  await apply('rollback', 'change-rollback');
  await done();
  await open();
  await page.getByText('active', { exact: true }).first().waitFor();
  assert.equal((await cluster()).definitions['shop-web'].version, 2);
  assert.deepEqual(b.complaints(), []);
});

test('what was broken outside is repaired by hand, and marked as repaired', async () => {
  writeFileSync(gate(), '');
  await open();
  await page.getByRole('link', { name: 'Change …' }).click();
  await page.getByRole('combobox', { name: /^Change/ }).selectOption('Configure');
  await page.getByLabel('Values', { exact: true }).fill('{"shop": {"greeting": "Moin"}}');
  await apply('configure');
  // The way back fails on the same disk.
  await eventually('the cluster has failed', async () => (await cluster()).status === 'failed', 120_000);
  await open();
  await page.getByText('failed', { exact: true }).first().waitFor();
  await b.good('failed');
  rmSync(gate());
  await page.getByRole('button', { name: 'Mark as repaired …' }).click();
  const mark = dialog().getByRole('button', { name: 'Mark as repaired' });
  assert.ok(await mark.isDisabled()); // without a reason
  await dialog().getByLabel('Reason').fill('made room on the disk');
  assert.equal(await dialog().locator('code').innerText(), `coopr cluster resolve my-shop --reason 'made room on the disk'`);
  await b.good('resolve');
  await mark.click();
  await dialog().waitFor({ state: 'hidden' });
  await page.getByText('active', { exact: true }).first().waitFor();
  assert.deepEqual(b.complaints(), []);
});

test('a viewer sees all of it and can change nothing', async () => {
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
    const { id } = await cluster();
    await other.goto(`${agent.url}/#/cluster/${id}`);
    await other.getByRole('rowheader').first().waitFor();
    for (const name of ['Edit labels …', 'Prolong …', 'Pause recovery …']) assert.equal(await other.getByRole('button', { name }).count(), 0, name);
    assert.equal(await other.getByRole('checkbox').count(), 0);
    await other.getByRole('tab', { name: 'History' }).click();
    await other.getByRole('button', { name: 'Compare: snapshot 1', exact: true }).click();
    await other.getByRole('heading', { name: 'Differences' }).waitFor();
    assert.equal(await other.getByRole('link', { name: /^Roll back/ }).count(), 0);
    await other.getByRole('tab', { name: 'Services' }).click();
    await other.getByRole('rowheader', { name: 'shop-web' }).waitFor();
    assert.equal(await other.getByRole('tabpanel').getByRole('link').count(), 0);
    for (const [path, body] of [['rollback', { to: 1 }], ['lease', { add: '2h' }], ['labels', { set: { a: 'b' } }], ['recovery/pause', {}]]) {
      const status = await other.evaluate(([path, body]) => fetch(path, { method: 'POST', body, headers: { 'Coopr-Csrf': '1', 'Content-Type': 'application/json' } })
        .then((r) => r.status), [`/v1/clusters/${id}/${path}`, JSON.stringify(body)]);
      assert.equal(status, 403, path);
    }
  } finally {
    await context.close();
  }
});

test('the shop is deleted', async () => {
  await open();
  await page.getByRole('button', { name: 'Delete …' }).click();
  await dialog().getByRole('textbox').fill('my-shop');
  await dialog().getByRole('button', { name: 'Delete' }).click();
  await heading('Operation delete');
  await done();
  await page.goto(`${agent.url}/#/clusters?status=terminated`);
  await page.getByRole('link', { name: 'my-shop' }).click();
  await heading('Cluster my-shop');
  assert.equal(await page.getByRole('button', { name: 'Prolong …' }).count(), 0);
  assert.deepEqual(b.complaints(), []);
});
