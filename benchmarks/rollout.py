"""Sampling with log-probabilities and updates of Fair-GRPO beside the bare passes of the network, measured in one run.

python benchmarks/rollout.py [--rows NAME ...] [--repeats N]

Results go to benchmarks/results/rollout.json and rollout.csv. How it measures: README.md beside this file.
The reference of `rollout` is the pipeline's own call; that of `update` is the same sampling, labelling, forward and backward passes
without seeds, records, checks, rewards, advantages and ratios.
"""
import os

from harness import Row, main

os.environ.setdefault("HF_HUB_OFFLINE", "1")
PICTURES = 48


def make(small=False):
    return {"pictures": 8 if small else PICTURES}


def ready():
    import torch
    from fairical_nb import tiny_pipeline
    from fairical_nb.families import family
    from fairical_nb.grpo_settings import settings
    torch.set_num_threads(1)
    pipe = tiny_pipeline.load()
    pipe.set_progress_bar_config(disable=True)
    return torch, pipe, family(pipe, max_sequence_length=0), list(settings("tiny").sigmas)


def ours_rollout(data):
    from fairical_nb.rollout import rollout
    torch, pipe, tiny, sigmas = KEPT.setdefault("rollout", ready())
    walk = rollout(tiny, ["a portrait of a person"] * data["pictures"], range(data["pictures"]), sigmas=sigmas)
    return {"pictures": len(walk.images)}


def pipes_own(data):
    torch, pipe, tiny, sigmas = KEPT.setdefault("rollout", ready())
    n = data["pictures"]
    told = tiny.encode(["a portrait of a person"]).select([0] * n).positive
    images = pipe(prompt_embeds=told["encoder_hidden_states"], pooled_prompt_embeds=told["pooled_projections"], generator=[torch.Generator().manual_seed(i) for i in range(n)], sigmas=sigmas,
                  num_inference_steps=len(sigmas), guidance_scale=1., height=32, width=32, output_type="pt").images
    return {"pictures": len(images)}


def started(n):
    from fairical_nb import tiny_pipeline
    from fairical_nb.glyph_world import captions
    from fairical_nb.grpo_settings import settings
    from fairical_nb.grpo_trainer import start
    torch, pipe, tiny, sigmas = ready()
    return start(pipe, tiny_pipeline.labeller(), captions(split="train"), settings("tiny", groups=n // 8, pictures=8, batch=n))


def ours_update(data):
    from fairical_nb.grpo_trainer import update
    run = KEPT.setdefault(data["pictures"], started(data["pictures"]) if data["pictures"] not in KEPT else None)
    update(run)
    return {"pictures": data["pictures"]}


def bare_update(data):
    import torch
    from fairical_nb.adapters import without_adapter
    n = data["pictures"]
    run = KEPT.setdefault(n, started(n) if n not in KEPT else None)
    net, sigmas = run.network, list(run.settings.sigmas)
    told = run.conditions.select(range(n)).positive
    with torch.no_grad():
        x, seen = torch.randn(n, 8, 8, 8), []
        for s, t in zip(sigmas, [*sigmas[1:], 0.]):
            seen.append(x)
            x = x + (t - s) * net(hidden_states=x, timestep=torch.full((n,), 1000 * s), return_dict=False, **told)[0]
        run.labeller.label(run.adapter.decode(x))
    for k in range(run.settings.time_steps):
        time = torch.full((n,), 1000 * sigmas[k])
        out = net(hidden_states=seen[k], timestep=time, return_dict=False, **told)[0]
        with torch.no_grad(), without_adapter(net): ref = net(hidden_states=seen[k], timestep=time, return_dict=False, **told)[0]
        ((out - ref) ** 2).mean().backward()
        run.optimiser.step()
        run.optimiser.zero_grad()
    return {"pictures": n}


KEPT = {}
ROWS = {
    "rollout": Row(f"{PICTURES} pictures of the tiny pipeline in 8 noisy steps, with log-probabilities and the record", make, ours_rollout, pipes_own, reference_name="the pipeline's own call",
                   ratio=.87, repeats=(5, 5), needs=("torch", "diffusers")),
    "update": Row(f"one update of Fair-GRPO on {PICTURES} pictures at 3 time-steps", make, ours_update, bare_update, reference_name="its bare passes, forward and backward",
                  ratio=.77, megabytes=3000, repeats=(5, 5), needs=("torch", "diffusers", "peft", "accelerate")),
}


if __name__ == "__main__":
    main(ROWS, "rollout", "Sampling and updates of Part III beside their bare passes; results in benchmarks/results")
