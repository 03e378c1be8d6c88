"""Fine-tuning by Lightning: all weights or adapters, gradient accumulation, bf16, resume after each epoch."""

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from torch import Tensor, nn

from recunlearn.foundation.errors import RecunlearnError, UsageError
from recunlearn.foundation.quiet import silent_lightning
from recunlearn.foundation.seeds import uniform
from recunlearn.foundation.store import content_hash
from recunlearn.subjects.contract import Batch, IntArray
from recunlearn.subjects.progress import Bar
from recunlearn.subjects.state_file import read_state, write_state
from recunlearn.subjects.tofu.arithmetic import training_arithmetic
from recunlearn.subjects.tofu.likelihood import mean_log_likelihood
from recunlearn.subjects.tofu.model import quiet_transformers
from recunlearn.subjects.tofu.samples import Samples
from recunlearn.subjects.tofu.settings import LanguageTrainingSettings

STATE = "last.ckpt"


@dataclass(frozen=True)
class Fitted:
    """A trained model in eval mode, and the mean loss of every epoch."""

    model: nn.Module
    losses: tuple[float, ...]


def fit(
    model: nn.Module,
    samples: Samples,
    rows: IntArray,
    settings: LanguageTrainingSettings,
    *,
    seed: int,
    work: Path | None = None,
    progress: bool = False,
    title: str = "Training",
) -> Fitted:
    """Train ``model`` in place on ``rows``.

    Args:
        model: where training begins, on its device.
        samples, rows: what it learns; the loss of a row is the mean over its answer's tokens.
        settings: epochs, rate, batches, adapters.
        seed: of the order of rows, of adapters and of dropout.
        work: folder that a killed run goes on from after its last whole epoch; None: no resume.
        progress: show a bar on stderr.
        title: text before the bar.

    Raises:
        RecunlearnError: the loss is no longer a number.
        UsageError: bf16 was asked for and the device has none, or adapters that the model cannot have.
    """
    adapted = model if settings.lora is None else _with_adapters(model, settings, seed)
    run = _Run(adapted, samples, rows, settings, seed, work)
    run.resume()
    if run.epoch < settings.epochs:
        _train(run, [Bar(title, settings.epochs, run, early=False)] if progress else [])
    trained: Any = adapted
    if settings.lora is not None:
        # Adapters froze the weights they are merged into.
        trained = trained.merge_and_unload().requires_grad_(True)
    return Fitted(trained.eval(), tuple(run.losses))


def _with_adapters(model: Any, settings: LanguageTrainingSettings, seed: int) -> nn.Module:
    with quiet_transformers(), torch.random.fork_rng():
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(seed)
        options: dict[str, Any] = {"r": settings.lora, "lora_alpha": settings.lora_alpha}
        adapters = LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM", **options)
        try:
            return get_peft_model(model, adapters)
        except ValueError as error:  # models whose linear layers cannot be adapted
            raise UsageError(
                f"{type(model).__name__} cannot be trained by adapters ({' '.join(str(error).split())}). "
                "Leave out --lora (training.lora), or choose another model."
            ) from None


class _Run:
    """State of a training; what a killed one goes on from."""

    best_score: float | None = None
    best_epoch = 0

    def __init__(
        self,
        model: nn.Module,
        samples: Samples,
        rows: IntArray,
        settings: LanguageTrainingSettings,
        seed: int,
        work: Path | None,
    ) -> None:
        self.model, self.samples, self.rows, self.settings, self.seed = model, samples, rows, settings, seed
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.optimiser = torch.optim.AdamW(
            self.trained.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.path = None if work is None else work / STATE
        self.identity = content_hash(
            settings.model_dump(), seed, rows, [samples.encoded.tokens[r] for r in rows], sorted(self.trained)
        )
        self.epoch, self.losses = 0, list[float]()

    def order(self) -> IntArray:
        """Rows in the order of the epoch that is next."""
        lot = uniform(self.rows.astype(np.uint64) + np.uint64(self.epoch) * np.uint64(1 << 32), self.seed)
        return self.rows[np.argsort(lot, kind="stable")]

    def close_epoch(self, loss: float) -> None:
        """Keep what the next epoch needs."""
        self.epoch += 1
        self.losses.append(loss)
        if self.path is not None:
            state = {"weights": {k: p.detach() for k, p in self.trained.items()}, "epoch": self.epoch}
            state |= {"optimiser": self.optimiser.state_dict(), "losses": self.losses}
            write_state(self.path, self.identity, state)

    def resume(self) -> None:
        """Go on where a killed run with the same settings and rows stopped; ignore what is unreadable."""
        state = None if self.path is None else read_state(self.path, self.identity)
        if state is None:
            return
        with torch.no_grad():
            for name, parameter in self.trained.items():
                parameter.copy_(state["weights"][name])
        self.optimiser.load_state_dict(state["optimiser"])
        self.epoch, self.losses = state["epoch"], state["losses"]


class _Loader:
    """Batches of an epoch, in its own order; the last one may be smaller."""

    def __init__(self, run: _Run) -> None:
        self.run, self.size = run, run.settings.batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.run.rows) / self.size)

    def share(self, batch_idx: int, rows: int) -> float:
        """Weight of a batch's mean loss, so that every row of a step counts alike.

        Lightning divides by ``accumulate``, but the last step of an epoch may have fewer batches, and its
        last batch fewer rows.
        """
        together = self.run.settings.accumulate
        begin = batch_idx // together * together * self.size
        return rows * together / min(together * self.size, len(self.run.rows) - begin)

    def __iter__(self) -> Iterator[Batch]:
        order = self.run.order()
        for at in range(0, len(order), self.size):
            yield self.run.samples.batch(order[at : at + self.size])


class _Module(lightning.LightningModule):
    """The model with the mean loss of its rows."""

    def __init__(self, run: _Run) -> None:
        super().__init__()
        self.model, self.run, self.loader = run.model, run, _Loader(run)
        self.total, self.seen = 0.0, 0

    def on_train_epoch_start(self) -> None:
        # Dropout of an epoch depends on seed and epoch alone, so that a resumed run repeats it.
        torch.manual_seed(self.run.seed * 100_003 + self.run.epoch)
        self.model.train()
        self.total, self.seen = 0.0, 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        with training_arithmetic(self.model, self.run.settings):
            loss = -mean_log_likelihood(self.model, batch).mean()
        value = loss.item()
        if not math.isfinite(value):
            raise RecunlearnError(
                f"The training loss is no longer a number in epoch {self.run.epoch + 1}. Lower "
                "training.learning_rate, or set training.clip."
            )
        self.total, self.seen = self.total + value * len(batch), self.seen + len(batch)
        return loss * self.loader.share(batch_idx, len(batch))

    def on_train_epoch_end(self) -> None:
        self.run.close_epoch(self.total / self.seen)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.run.optimiser

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return batch.to(device)


class _Interruption(lightning.Callback):
    """Remembers Ctrl-C."""

    seen = False

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.seen = isinstance(exception, KeyboardInterrupt)


@contextmanager
def _adapters_as_they_come(run: _Run) -> Iterator[None]:
    """Adapters take bf16 as it is: peft makes float32 of it, which their products make bf16 of again."""
    if run.settings.lora is None:
        yield
        return
    from peft.helpers import disable_input_dtype_casting

    with disable_input_dtype_casting(run.model):
        yield


def _train(run: _Run, callbacks: list[Any]) -> None:
    device, settings = next(run.model.parameters()).device, run.settings
    interruption, handler = _Interruption(), signal.getsignal(signal.SIGINT)
    with silent_lightning(), quiet_transformers(), torch.random.fork_rng(), _adapters_as_they_come(run):
        trainer = lightning.Trainer(
            accelerator="cpu" if device.type == "cpu" else "gpu",
            devices=1 if device.type == "cpu" else [device.index or 0],
            max_epochs=settings.epochs - run.epoch,
            accumulate_grad_batches=settings.accumulate,
            gradient_clip_val=settings.clip,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            callbacks=[interruption, *callbacks],
        )
        module = _Module(run)
        try:
            trainer.fit(module, train_dataloaders=module.loader)
        except SystemExit:
            # Lightning turns Ctrl-C into exit(1) and leaves the signal ignored.
            if not interruption.seen:
                raise
            signal.signal(signal.SIGINT, handler)
            raise KeyboardInterrupt from None
        run.model.to(device)


__all__ = ["STATE", "Fitted", "fit"]
